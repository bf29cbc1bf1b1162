package streamoptions

import (
	"fmt"
	"net/url"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestCheckLog(t *testing.T) {
	i := func(n int64) *int64 { return &n }
	s := func(s string) *string { return &s }
	for _, test := range []struct {
		o    corev1.PodLogOptions
		want string
	}{
		{corev1.PodLogOptions{}, "[]"},
		{corev1.PodLogOptions{TailLines: i(-1)}, "[tailLines: Invalid value: -1: must be greater than or equal to 0]"},
		{corev1.PodLogOptions{LimitBytes: i(0), SinceSeconds: i(0)}, "[limitBytes: Invalid value: 0: must be greater than 0 sinceSeconds: Invalid value: 0: must be greater than 0]"},
		{corev1.PodLogOptions{Stream: s("x")}, `[stream: Unsupported value: "x": supported values: "All", "Stdout", "Stderr"]`},
		{corev1.PodLogOptions{Stream: s("Stdout"), TailLines: i(1)}, "[[]: Forbidden: `tailLines` and specific `stream` are mutually exclusive for now]"},
	} {
		var texts []string
		for _, e := range ValidateLog(&test.o) {
			texts = append(texts, e.Error())
		}
		if got := fmt.Sprint(texts); got != test.want {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, test := range []struct{ query, want string }{
		{"", ""},
		{"follow=true&previous=0&timestamps=false", "follow=true"},
		{"follow", "follow=true"},
		{"tailLines=5&limitBytes=7&sinceSeconds=9", "limitBytes=7&sinceSeconds=9&tailLines=5"},
		{"sinceTime=2026-01-01T00:00:00Z", "sinceTime=2026-01-01T00%3A00%3A00Z"},
		{"stream=Stdout&unknown=1", "stream=Stdout"},
		{"tailLines=x", `strconv.ParseInt: parsing "x": invalid syntax`},
		{"sinceTime=x", `parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"`},
	} {
		q, err := url.ParseQuery(test.query)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if o, err := ParseLog(q); err != nil {
			got = err.Error()
		} else {
			got = LogQuery(o).Encode()
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.query, got, test.want)
		}
	}
}

func TestCommands(t *testing.T) {
	q, err := url.ParseQuery("container=c&stdin=true&stdout=1&stderr=true&tty=true&command=ls&command=-l")
	if err != nil {
		t.Fatal(err)
	}
	c := ParseExec(q)
	want := Command{Container: "c", Stdin: true, Stdout: true, Stderr: true, TTY: true, Args: []string{"ls", "-l"}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v, want %+v", c, want)
	}
	want.Container, want.Stderr = "", false // a terminal is one stream
	if got := OfNode(c.NodeQuery()); !reflect.DeepEqual(got, want) {
		t.Errorf("the node hears %+v, want %+v", got, want)
	}
	if got := ParseAttach(q); got.Args != nil {
		t.Errorf("attaching runs %v", got.Args)
	}
}

func TestPorts(t *testing.T) {
	for text, want := range map[string]string{"": "[]", "ports=80&ports=81": "[80 81]", "ports=80,81": "[80 81]", "ports=x": `cannot convert to []int32: strconv.ParseUint: parsing "x": invalid syntax`} {
		q, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		ports, err := ParsePorts(q)
		got := fmt.Sprint(ports)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
