package cli

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
	"proa.dev/trace"
)

func TestChangedObject(t *testing.T) {
	for line, want := range map[string]string{
		"deployment.apps/web created\n":                "deployment.apps/web",
		"service/web configured":                       "service/web",
		"pod/a serverside-applied":                     "pod/a",
		"configmap/a unchanged":                        "",
		"Warning: resource pods/a is missing the text": "",
		"pod/a created (dry run)":                      "",
		"created":                                      "",
		"":                                             "",
	} {
		got, changed := changedObject(line)
		if changed != (want != "") || changed && got != want {
			t.Errorf("%q: %q %v", line, got, changed)
		}
	}
}

func TestTargetOfKubectl(t *testing.T) {
	c := localcluster.Cluster{Dir: "/data"}
	got := targetOf(c, strings.Fields("apply -f x.yaml -n shop --kubeconfig=other --context one"))
	if got.namespace != "shop" || got.kubeconfig != "other" || got.context != "one" {
		t.Errorf("got %+v", got)
	}
	if got := targetOf(c, strings.Fields("apply -f x.yaml --namespace")); got.namespace != "" {
		t.Errorf("got %+v", got)
	}
}

func TestUnicodeDependsOnLocale(t *testing.T) {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		t.Setenv(name, "")
	}
	if !hasUnicode() {
		t.Error("without a locale there are only ASCII characters")
	}
	t.Setenv("LANG", "C")
	if hasUnicode() {
		t.Error("the locale C has bars of Unicode")
	}
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	if !hasUnicode() {
		t.Error("a locale of UTF-8 has none")
	}
	if f, err := os.Open(os.DevNull); err != nil || terminalWidth(f) != 0 {
		t.Errorf("the null device is a terminal: %v", err)
	}
}

// TestTraceCommand runs the command against a server without traces, and one whose object becomes ready while it is followed and
// whose texts have control characters, which must not be printed.
func TestTraceCommand(t *testing.T) {
	const group = `{"metadata":{"name":"trace.proa.dev"},"versions":[{"version":"v1","resources":[
		{"resource":"traces","responseKind":{"kind":"Trace"},"scope":"Namespaced","singularResource":"trace","verbs":["get","list"]}]}]}`
	const pods = `{"items":[{"versions":[{"version":"v1","resources":[
		{"resource":"pods","responseKind":{"kind":"Pod"},"scope":"Namespaced","singularResource":"pod","verbs":["get","list"]}]}]}]}`
	const span = `"start":"2026-11-17T12:00:00Z","spans":[{"id":"1","name":"create \u001b[2Jpods","start":"2026-11-17T12:00:00Z","took":1000}]`
	var mu sync.Mutex
	requests, watches := 0, 0
	serve := func(hasTraces bool) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case r.URL.Path == "/api":
				fmt.Fprint(w, pods)
			case r.URL.Path == "/apis" && hasTraces:
				fmt.Fprint(w, `{"items":[`+group+`]}`)
			case r.URL.Path == "/apis":
				fmt.Fprint(w, `{"items":[]}`)
			case r.URL.Path == "/apis/trace.proa.dev/v1/namespaces/shop/traces/pods:web":
				if requests++; requests < 3 {
					fmt.Fprint(w, `{"metadata":{"name":"pods:web"},"state":"Running","stuck":"still at hop 11, 1 s so far",`+span+`}`)
				} else {
					fmt.Fprint(w, `{"metadata":{"name":"pods:web"},"state":"Ready","summary":"2 s from apply to Ready",`+span+`}`)
				}
			case r.URL.Query().Get("watch") != "" && r.URL.Query().Get("fieldSelector") == "metadata.name=pods:watched":
				watches++
				fmt.Fprint(w, `{"type":"ADDED","object":{"metadata":{"name":"pods:watched"},"state":"Running",`+span+"}}\n"+
					`{"type":"MODIFIED","object":{"metadata":{"name":"pods:watched"},"state":"Ready","summary":"3 s from apply to Ready",`+
					span+"}}\n")
			case r.URL.Query().Get("watch") != "":
				w.WriteHeader(http.StatusMethodNotAllowed)
			case r.URL.Path == "/apis/trace.proa.dev/v1/namespaces/shop/traces":
				fmt.Fprint(w, `{"items":[{"metadata":{"name":"pods:web","namespace":"shop"},"user":"mallory\u001b[","state":"Ready",`+
					`"start":"2026-11-17T12:00:00Z","took":2000000000}]}`)
			default:
				w.WriteHeader(http.StatusNotFound)
				fmt.Fprint(w, `{"kind":"Status","reason":"NotFound","code":404,"message":"no record of \u001b[31mit"}`)
			}
		}))
		t.Cleanup(s.Close)
		file := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(file, fmt.Appendf(nil, "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\n"+
			"clusters: [{name: k, cluster: {server: %q}}]", s.URL), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	with, without := serve(true), serve(false)
	for _, c := range []struct{ file, flags, object, want string }{
		{without, "", "pod/web", "does not record traces"},
		{with, "", "pod/web", "still at hop 11|exit 3"},
		{with, "-live", "pod/web", "2 s from apply to Ready|exit 0"},
		{with, "-live", "pod/watched", "3 s from apply to Ready|exit 0"},
		{with, "-o=json", "pod/web", `"state": "Ready"|exit 0`},
		{with, "-o=xml", "pod/web", "-o takes json, chrome or otlp"},
		{with, "-otlp-headers-file=x", "pod/web", "--otlp-headers-file need --otlp: say where"},
		{with, "-o=otlp -otlp-ca-file=x", "pod/web", "--otlp-headers-file need --otlp: say where"},
		{with, "", "pod/other", "no record of"},
		{with, "", "", "NAMESPACE   NAME       COMMAND   USER|pods:web             mallory|2.00 s   Ready|exit 0"},
		{without, "", "", "does not record traces"},
		{with, "", "pod web more", "name one object"},
	} {
		fs := flag.NewFlagSet("trace", flag.ContinueOnError)
		run := traceCommand().Setup(fs)
		if err := fs.Parse(append([]string{"-kubeconfig", c.file, "-n", "shop"}, strings.Fields(c.flags)...)); err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		err := run(t.Context(), &command.Env{Out: &out, Err: &errOut}, strings.Fields(c.object))
		if strings.Contains(out.String()+errOut.String(), "\x1b") {
			t.Errorf("%s %s: a text of the cluster reaches the terminal: %q %q", c.flags, c.object, out.String(), errOut.String())
		}
		if code, isCode := errors.AsType[command.ExitCode](err); err != nil && !isCode {
			fmt.Fprint(&out, err)
		} else {
			fmt.Fprintf(&out, "exit %d", code)
		}
		for _, want := range strings.Split(c.want, "|") {
			if !strings.Contains(out.String(), want) {
				t.Errorf("trace %s %s: no %q in\n%s", c.flags, c.object, want, out.String())
			}
		}
	}
	if watches != 1 {
		t.Errorf("it has watched %d times", watches)
	}
}

// TestTraceGrows checks that work that goes on takes longer while nothing is heard of it, and nothing else does.
func TestTraceGrows(t *testing.T) {
	before := &trace.Trace{State: trace.Running, Took: 1, Spans: []trace.Span{{Took: 1, Open: true}, {Took: 1}}}
	after := grown(before, 5)
	if after.Took != 6 || after.Spans[0].Took != 6 || after.Spans[1].Took != 1 || before.Spans[0].Took != 1 {
		t.Errorf("%+v of %+v", after, before)
	}
}

func TestTakeTraceFlag(t *testing.T) {
	for args, want := range map[string]string{
		"-f x.yaml":               "-f x.yaml",
		"-f x.yaml --trace":       "-f x.yaml, follow",
		"--trace -f x.yaml":       "-f x.yaml, follow",
		"--trace=true -f x.yaml":  "-f x.yaml, follow",
		"--trace=false -f x.yaml": "-f x.yaml",
		"-f x.yaml --trace=maybe": `--trace is true or false, and not "maybe"`,
		"-f x.yaml --tracer":      "-f x.yaml --tracer",
	} {
		rest, follow, err := takeTraceFlag(strings.Fields(args))
		got := strings.Join(rest, " ")
		if follow {
			got += ", follow"
		}
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}
