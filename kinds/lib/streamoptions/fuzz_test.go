package streamoptions

import (
	"net/url"
	"reflect"
	"testing"
)

// FuzzStream checks that the options of a stream are parsed or rejected, and that they are the same after they were encoded for
// the node and parsed again.
func FuzzStream(f *testing.F) {
	f.Add("container=a&follow=1&sinceSeconds=3&tailLines=5&limitBytes=9&stream=All&timestamps=true")
	f.Add("sinceTime=2026-01-02T03:04:05%2B01:00&previous=False")
	f.Add("stdin=1&stdout=true&tty&command=sh&command=-c")
	f.Add("ports=80,443&ports=8080")
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		if o, err := ParseLog(q); err == nil && len(ValidateLog(o)) == 0 {
			again, err := ParseLog(LogQuery(o))
			if err != nil {
				t.Fatalf("%q cannot be sent to a node: %v", query, err)
			}
			if o.SinceTime != nil {
				if again.SinceTime == nil || again.SinceTime.Unix() != o.SinceTime.Unix() {
					t.Errorf("since %v, and the node gets %v", o.SinceTime, again.SinceTime)
				}
				again.SinceTime = o.SinceTime
			}
			again.Container, again.InsecureSkipTLSVerifyBackend = o.Container, o.InsecureSkipTLSVerifyBackend
			if !reflect.DeepEqual(o, again) {
				t.Errorf("%+v, and the node gets %+v", o, again)
			}
		}
		c := ParseExec(q)
		parsed := OfNode(c.NodeQuery())
		if parsed.Stdin != c.Stdin || parsed.Stdout != c.Stdout || parsed.Stderr != (c.Stderr && !c.TTY) || parsed.TTY != c.TTY ||
			len(parsed.Args) != len(c.Args) {
			t.Errorf("%+v, and the node gets %+v", c, parsed)
		}
		ports, err := ParsePorts(q)
		for _, p := range ports {
			if err != nil || p < 0 || p > 65535 {
				t.Errorf("port %d, %v", p, err)
			}
		}
	})
}
