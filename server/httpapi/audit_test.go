package httpapi_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"proa.dev/proatest"
	"proa.dev/run"
)

// startWithAuditLog starts a cluster with an audit log. The returned function stops it and returns the events of one user
// agent, with placeholders for values that differ from run to run.
func startWithAuditLog(t *testing.T, policy string) (c *proatest.Cluster, events func(agent string) []string) {
	t.Helper()
	dir := t.TempDir()
	path, rules := filepath.Join(dir, "audit.log"), ""
	if policy != "" {
		rules = filepath.Join(dir, "policy.yaml")
		if err := os.WriteFile(rules, []byte(policy), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c = proatest.Start(t, func(c *run.Config) { c.Audit, c.AuditPolicy = path, rules })
	return c, func(agent string) []string {
		t.Helper()
		c.Stop()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		type event struct{ at, text string }
		var found []event
		lines := bufio.NewScanner(bytes.NewReader(text))
		lines.Buffer(nil, 8<<20)
		for lines.Scan() {
			var e struct {
				UserAgent string `json:"userAgent"`
				Received  string `json:"requestReceivedTimestamp"`
			}
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Fatalf("%v in %.300s", err, lines.Text())
			}
			if e.UserAgent == agent {
				found = append(found, event{e.Received, mask(lines.Text())})
			}
		}
		// The ResponseComplete event of a request may be written after the first event of the next one.
		slices.SortStableFunc(found, func(a, b event) int { return strings.Compare(a.at, b.at) })
		var out []string
		for _, e := range found {
			out = append(out, e.text)
		}
		return out
	}
}

var masks = []struct {
	find *regexp.Regexp
	put  string
}{
	{regexp.MustCompile(`(imestamp":)"[^"]*"`), `${1}"T"`},
	{regexp.MustCompile(`("uid":)"[^"]*"`), `${1}"U"`},
	{regexp.MustCompile(`("resourceVersion":)"[^"]*"`), `${1}"V"`},
	{regexp.MustCompile(`("auditID":)"[0-9a-f]{8}-[^"]*"`), `${1}"ID"`},
	{regexp.MustCompile(`"managedFields":\[.*?\}\]`), `"managedFields":[]`},
}

func mask(line string) string {
	for _, m := range masks {
		line = m.find.ReplaceAllString(line, m.put)
	}
	return line
}

// expectEvents compares events with want, of which each line has the stage of an event and a text that it must contain, or
// must not contain if an exclamation mark precedes it.
func expectEvents(t *testing.T, got []string, want string) {
	t.Helper()
	i := -1
	for line := range strings.Lines(strings.TrimSpace(want)) {
		line = strings.TrimSpace(line)
		if stage, found := strings.CutPrefix(line, "- "); found {
			if i++; i >= len(got) {
				t.Fatalf("there are only %d events; wanted next: %s\n%s", len(got), line, strings.Join(got, "\n"))
			}
			line = `"stage":"` + stage + `"`
		}
		text, not := strings.CutPrefix(line, "!")
		if strings.Contains(got[i], text) == not {
			t.Errorf("event %d: want %s\nin %s", i, line, got[i])
		}
	}
	if i != len(got)-1 {
		t.Errorf("there are %d more events: %s", len(got)-1-i, strings.Join(got[i+1:], "\n"))
	}
}

func TestAuditEvents(t *testing.T) {
	c, events := startWithAuditLog(t, "")
	w := newHTTPClient(t, c)
	const maps = "/api/v1/namespaces/default/configmaps"
	const agent = "User-Agent: tester/1"
	_, _, head := w.doWithHeader("POST", maps+"?fieldManager=x",
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"hidden"}}`, agent)
	if head.Get("Audit-Id") == "" {
		t.Error("the answer has no Audit-Id")
	}
	w.must(200, "GET", maps+"/a", "", agent, "Audit-ID: mine")
	w.must(200, "GET", maps+"?watch=1&timeoutSeconds=1", "", agent)
	w.must(403, "DELETE", maps+"/a", "", agent, "Impersonate-User: bob", "Impersonate-Group: crew")
	w.must(404, "GET", maps+"/b", "", agent)
	w.must(200, "DELETE", maps+"/a", "", agent)
	w.do("GET", "/readyz?verbose", "", agent)
	w.must(200, "GET", "/version", "", agent)
	anonymous := newHTTPClient(t, c, func(r *rest.Config) { r.CertData, r.KeyData, r.CertFile, r.KeyFile = nil, nil, "", "" })
	anonymous.do("GET", maps, "", agent, "Authorization: Bearer wrong")
	got := events("tester/1")
	const ref = `"objectRef":{"resource":"configmaps","namespace":"default","name":"a","apiVersion":"v1"}`
	const admin = `"user":{"username":"proa-admin","groups":[`
	if len(got) > 1 {
		if want := `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"ID","stage":"ResponseComplete",` +
			`"requestURI":"` + maps + `?fieldManager=x","verb":"create",`; !strings.HasPrefix(got[1], want) {
			t.Errorf("got %s\nwant %s…", got[1], want)
		}
	}
	expectEvents(t, got, `
		- RequestReceived
		"objectRef":{"resource":"configmaps","namespace":"default","apiVersion":"v1"}
		!annotations
		!responseStatus
		- ResponseComplete
		"verb":"create"
		`+admin+`
		"sourceIPs":["127.0.0.1"],"userAgent":"tester/1",`+ref+`
		"responseStatus":{"metadata":{},"code":201}
		"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"
		!hidden
		- RequestReceived
		"auditID":"mine"
		- ResponseComplete
		"auditID":"mine"
		"verb":"get"
		`+ref+`
		"code":200
		- RequestReceived
		"verb":"watch"
		- ResponseStarted
		"code":200
		- ResponseComplete
		"requestURI":"`+maps+`?watch=1\u0026timeoutSeconds=1","verb":"watch"
		- RequestReceived
		!impersonatedUser
		- ResponseComplete
		`+admin+`
		"impersonatedUser":{"username":"bob","groups":["crew","system:authenticated"]}
		"responseStatus":{"metadata":{},"status":"Failure","message":"configmaps \"a\" is forbidden: User \"bob\" cannot delete resource
		"reason":"Forbidden","details":{"name":"a","kind":"configmaps"},"code":403}
		"authorization.k8s.io/decision":"forbid"
		- RequestReceived
		- ResponseComplete
		"reason":"NotFound"
		- RequestReceived
		- ResponseComplete
		"verb":"delete"
		"responseStatus":{"metadata":{},"status":"Success","details":{"name":"a","kind":"configmaps","uid":"U"},"code":200}
		- RequestReceived
		- ResponseComplete
		"requestURI":"/version","verb":"get"
		!objectRef
		- ResponseStarted
		"user":{}
		"reason":"Unauthorized","code":401}
		!annotations
	`)
}

func TestAuditBodies(t *testing.T) {
	c, events := startWithAuditLog(t, `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  users: ["system:serviceaccount:kube-system:service-account-controller"]
- level: Request
  namespaces: [default]
  resources: [{group: "", resources: [serviceaccounts, secrets]}]
- level: RequestResponse
  namespaces: [default]
  omitStages: [Panic]
- level: Metadata
`)
	w := newHTTPClient(t, c)
	const agent = "User-Agent: tester/2"
	const ns = "/api/v1/namespaces/default/"
	w.must(201, "POST", ns+"serviceaccounts", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"s"}}`, agent)
	w.must(201, "POST", ns+"secrets", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"k":"in"}}`, agent)
	w.must(201, "POST", ns+"serviceaccounts/s/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`, agent)
	w.must(201, "POST", ns+"configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"in"}}`, agent)
	w.must(200, "PATCH", ns+"configmaps/a", `{"data":{"k":"patched"}}`, agent, "Content-Type: application/merge-patch+json")
	w.do("GET", ns+"configmaps?fieldSelector=metadata.name%3Da", "", agent, "Accept: application/vnd.kubernetes.protobuf")
	w.must(404, "GET", ns+"configmaps/none", "", agent)
	big := strings.Repeat("x", 600<<10)
	w.must(201, "POST", ns+"configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"big"},"data":{"k":"`+big+`"}}`, agent)
	w.must(201, "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"other"}}`, agent)
	// A controller, whose events are expected below, creates a ConfigMap some time after the start.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if code, _ := w.do("GET", ns+"configmaps/kube-root-ca.crt", ""); code == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no controller has created kube-root-ca.crt")
		}
	}
	_, metrics := w.do("GET", "/metrics", "")
	if !strings.Contains(metrics, "apiserver_audit_event_total") ||
		!strings.Contains(metrics, `apiserver_audit_level_total{level="Request"} 1`) {
		t.Errorf("the metrics do not count audit events:\n%s",
			strings.Join(slices.DeleteFunc(strings.Split(metrics, "\n"), func(l string) bool { return !strings.Contains(l, "audit") }),
				"\n"))
	}
	expectEvents(t, events("tester/2"), `
		- ResponseComplete
		"level":"Request"
		"requestObject":{"apiVersion":"v1"
		"kind":"ServiceAccount"
		!responseObject
		- ResponseComplete
		"level":"Metadata"
		"resource":"secrets"
		!requestObject
		!responseObject
		- ResponseComplete
		"level":"Metadata"
		"subresource":"token"
		!requestObject
		!responseObject
		- ResponseComplete
		"level":"RequestResponse"
		"requestObject":{"apiVersion":"v1","data":{"k":"in"},"kind":"ConfigMap"
		"responseObject":{"apiVersion":"v1","data":{"k":"in"},"kind":"ConfigMap"
		!managedFields
		- ResponseComplete
		"requestObject":{"data":{"k":"patched"}}
		"responseObject":{"apiVersion":"v1","data":{"k":"patched"}
		- ResponseComplete
		"name":"a"
		"verb":"list"
		"responseObject":{"apiVersion":"v1","items":[{"data":{"k":"patched"}
		!managedFields
		- ResponseComplete
		"responseObject":{"apiVersion":"v1","code":404
		- ResponseComplete
		"name":"big"
		!requestObject
		!responseObject
		"audit.k8s.io/truncated":"true"
		- ResponseComplete
		"level":"Metadata"
		!requestObject
	`)
	if got := events("system:serviceaccount:kube-system:service-account-controller"); len(got) > 0 {
		t.Errorf("the policy wants no events of the controller: %s", got[0])
	}
	if got := strings.Join(events("system:serviceaccount:kube-system:root-ca-cert-publisher"), "\n"); !strings.Contains(got,
		`"verb":"create"`) {
		t.Errorf("a controller left no trail: %s", got)
	}
}

// TestAuditOfStreamedLists checks that a list that is sent in pieces, in any format, is logged as a whole, or that the log says
// that it is too large.
func TestAuditOfStreamedLists(t *testing.T) {
	c, events := startWithAuditLog(t,
		"{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], rules: [{level: RequestResponse}]}")
	w := newHTTPClient(t, c)
	const maps = "/api/v1/namespaces/default/configmaps"
	const agent = "User-Agent: tester/1"
	text := strings.Repeat("x", 100_000)
	for _, name := range []string{"a", "b", "c"} {
		w.must(201, "POST", maps, `{"metadata":{"name":"`+name+`"},"data":{"k":"`+text+`"}}`)
	}
	w.must(200, "GET", maps, "", agent)
	w.do("GET", maps, "", agent, "Accept: application/vnd.kubernetes.protobuf")
	for i := range 8 {
		w.must(201, "POST", maps, `{"metadata":{"name":"d`+strings.Repeat("d", i)+`"},"data":{"k":"`+text+`"}}`)
	}
	w.must(200, "GET", maps, "", agent)
	got := events("tester/1")
	for _, e := range got[:2] {
		if !strings.Contains(e, `"responseObject":{"kind":"ConfigMapList"`) || !strings.Contains(e, `"name":"c"`) ||
			strings.Contains(e, "truncated") {
			t.Errorf("not logged as a whole: %.300s", e)
		}
	}
	expectEvents(t, got[2:], `
		- ResponseComplete
		!responseObject
		truncated
	`)
}
