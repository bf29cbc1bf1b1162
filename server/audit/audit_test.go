package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

func discardLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestPolicy(t *testing.T) {
	p, err := parsePolicy([]byte(`
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, users: [robot], verbs: [get]}
- {level: Request, userGroups: [crew], omitStages: [Panic], omitManagedFields: true}
- {level: None, nonResourceURLs: ["/health*", "/version"]}
- {level: RequestResponse, resources: [{group: "", resources: [pods, "*/status"], resourceNames: [a]}]}
- {level: Request, resources: [{group: apps, resources: ["deployments/*"]}, {group: batch}]}
- {level: Metadata, namespaces: [kube-system]}
- {level: Metadata, nonResourceURLs: ["*"]}
`), discardLogger())
	if err != nil {
		t.Fatal(err)
	}
	robot, crew := &user.DefaultInfo{Name: "robot"}, &user.DefaultInfo{Name: "x", Groups: []string{"y", "crew"}}
	for _, c := range []struct {
		want string
		r    Request
	}{
		{"None", Request{User: robot, Verb: "get", Path: "/x"}},
		{"Metadata", Request{User: robot, Verb: "post", Path: "/x"}},
		{"Request [RequestReceived Panic] true", Request{User: crew, Verb: "get", Path: "/version"}},
		{"None", Request{Path: "/version"}},
		{"None", Request{Path: "/healthz/etcd"}},
		{"Metadata", Request{Path: "/versions"}},
		{"RequestResponse", Request{IsResource: true, Resource: "pods", Name: "a"}},
		{"None", Request{IsResource: true, Resource: "pods", Name: "b"}},
		{"None", Request{IsResource: true, Resource: "pods", Subresource: "log", Name: "a"}},
		{"RequestResponse", Request{IsResource: true, Resource: "nodes", Subresource: "status", Name: "a"}},
		{"Request", Request{IsResource: true, Group: "apps", Resource: "deployments", Subresource: "scale"}},
		{"Request", Request{IsResource: true, Group: "apps", Resource: "deployments"}},
		{"None", Request{IsResource: true, Group: "apps", Resource: "replicasets"}},
		{"Request", Request{IsResource: true, Group: "batch", Resource: "jobs"}},
		{"Metadata", Request{IsResource: true, Resource: "events", Namespace: "kube-system"}},
		{"None", Request{IsResource: true, Resource: "events", Namespace: "default"}},
	} {
		v := p.decide(&c.r)
		got := string(v.level)
		if strings.Contains(c.want, " ") {
			got = fmt.Sprint(v.level, " ", v.omit, " ", v.omitManaged)
		}
		if got != c.want {
			t.Errorf("%+v: got %s, want %s", c.r, got, c.want)
		}
	}
}

func TestInvalidPolicies(t *testing.T) {
	const head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"
	for text, want := range map[string]string{
		"{":    "failed decoding",
		"a: b": "unknown group version field",
		"apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]": "unknown group version field audit.k8s.io/v1beta1, Kind=Policy in policy",
		head:                           "loaded illegal policy with 0 rules",
		head + "rules: [{level: All}]": `rules[0].level: Unsupported value: "All"`,
		head + "rules: [{}]":           "rules[0].level: Required value",
		head + "omitStages: [x]":       "omitStages[0]: Invalid value",
		head + "rules: [{level: None, unknown: 1}]": "",
	} {
		_, err := parsePolicy([]byte(text), discardLogger())
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func FuzzPolicy(f *testing.F) {
	f.Add([]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, nonResourceURLs: ['/a*']}]"))
	f.Add([]byte(`{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"None","resources":[{"resources":["*/x","y/*"]}]}]}`))
	f.Fuzz(func(_ *testing.T, text []byte) {
		p, err := parsePolicy(text, discardLogger())
		if err != nil {
			return
		}
		p.decide(&Request{Path: "/x"})
		p.decide(&Request{IsResource: true, Resource: "pods", Subresource: "log", User: &user.DefaultInfo{Name: "x"}})
	})
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte("old\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := openFile(path, 20, 2, discardLogger())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		if _, err := fmt.Fprintf(f, "line %d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for _, p := range []string{path + ".2", path + ".1", path} {
		all = append(all, readFile(t, p))
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", p, info.Mode(), err)
		}
	}
	if got, want := strings.Join(all, "|"), "line 4\nline 5\n|line 6\nline 7\n|line 8\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := os.Stat(path + ".3"); err == nil {
		t.Error("more files are kept than configured")
	}
}

// blockingFile is a file whose writes block until open is closed, and then fail with writeErr if that is set.
type blockingFile struct {
	bytes.Buffer
	open     chan struct{}
	blocked  chan struct{}
	writeErr error
	closed   bool
}

func (g *blockingFile) Write(b []byte) (int, error) {
	g.blocked <- struct{}{}
	<-g.open
	if g.writeErr != nil {
		return 0, g.writeErr
	}
	return g.Buffer.Write(b)
}

func (g *blockingFile) Close() error { g.closed = true; return nil }

var _ io.WriteCloser = (*blockingFile)(nil)

func TestSpoolIsBounded(t *testing.T) {
	g := &blockingFile{open: make(chan struct{}), blocked: make(chan struct{}, 9)}
	var lost, firstCalls int
	s := newFileBuffer(g, 10, time.Microsecond, func(n int, first bool, _ error) {
		lost += n
		if first {
			firstCalls++
		}
	})
	s.put([]byte("a\n"))
	<-g.blocked                   // the writer blocks with the first line
	s.put([]byte("a long one\n")) // an empty buffer accepts any line
	for range 5 {
		s.put([]byte("lost\n"))
	}
	if lost != 5 || firstCalls != 1 {
		t.Errorf("lost %d with %d messages, want 5 with 1", lost, firstCalls)
	}
	close(g.open)
	<-g.blocked
	s.put([]byte("b\n"))
	if err := s.close(); err != nil || !g.closed {
		t.Error(err)
	}
	if got, want := g.String(), "a\na long one\nb\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if s.put([]byte("late\n")); lost != 6 {
		t.Error("a line after the end is not counted as lost")
	}
}

func TestSpoolCountsFailedWrites(t *testing.T) {
	g := &blockingFile{open: make(chan struct{}), blocked: make(chan struct{}, 9), writeErr: errors.New("disk full")}
	close(g.open)
	total := 0
	s := newFileBuffer(g, 100, time.Second, func(n int, _ bool, _ error) { total += n })
	s.put([]byte("a\n"))
	s.put([]byte("b\n"))
	if err := s.close(); err != nil || total != 2 {
		t.Errorf("lost %d, want 2 (%v)", total, err)
	}
}

func TestWithoutRecord(t *testing.T) {
	var nothing *Record
	n := testing.AllocsPerRun(10, func() {
		nothing.Annotate("a", "b")
		nothing.SetDecision(true, "x", nil)
		nothing.SetRequestBody(nil)
		nothing.SetResponseBody(nil)
		nothing.ResponseStarted(200)
		nothing.ResponseComplete(200)
	})
	if n != 0 {
		t.Errorf("a request without a record costs %v allocations", n)
	}
}

func TestPanickedRequest(t *testing.T) {
	var out bytes.Buffer
	l, err := Open(Config{Path: "-", Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	tr := l.Begin(Request{ID: "1", Verb: "get", Path: "/x", Agent: strings.Repeat("a", 2000)})
	tr.Panicked("oh")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"stage":"` + string(auditv1.StagePanic), `"message":"APIServer panic'd: oh"`, `aaa...TRUNCATED"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %s in %s", want, out.String())
		}
	}
}

// BenchmarkRecord measures the cost of a request whose metadata is recorded.
func BenchmarkRecord(b *testing.B) {
	l, err := Open(Config{Path: filepath.Join(b.TempDir(), "audit.log")})
	if err != nil {
		b.Fatal(err)
	}
	who := &user.DefaultInfo{Name: "admin", Groups: []string{"system:masters", "system:authenticated"}}
	b.ReportAllocs()
	for b.Loop() {
		t := l.Begin(Request{ID: "1", Start: time.Now(), URI: "/api/v1/namespaces/default/configmaps/a", User: who, Verb: "get",
			IsResource: true, Version: "v1", Resource: "configmaps", Namespace: "default", Name: "a", Agent: "bench"})
		t.SetDecision(true, "", nil)
		t.ResponseComplete(200)
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}
