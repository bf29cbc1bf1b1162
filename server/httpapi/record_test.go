package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/server"
	"proa.dev/server/authz"
)

// denyMallory is an authorizer that allows everything to everybody else.
type denyMallory struct{ allowAll }

func (denyMallory) Authorize(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	if a.User.GetName() == "mallory" {
		return authz.Deny, "", nil
	}
	return authz.Allow, "", nil
}

// newRecordRig returns a rig with plugins that refuse objects with the label of their hop, and one that takes a while.
func newRecordRig(t *testing.T) *rig {
	t.Helper()
	r := newMemoryRig(t, 10)
	r.Authz = denyMallory{}
	refuse := func(label string) server.Plugin {
		return server.Plugin{Name: "Refuse" + label, Admit: func(_ context.Context, a *server.Admission) error {
			if a.Object != nil && a.Object.GetLabels()["refuse"] == label {
				return a.Forbidf("it says %s", label)
			}
			if a.Object != nil && a.Object.GetLabels()["slow"] == label {
				time.Sleep(time.Millisecond)
			}
			return nil
		}}
	}
	r.Mutate, r.Check = []server.Plugin{refuse("Mutate")}, []server.Plugin{refuse("Validate")}
	return r
}

// describe returns a record in one line.
func describe(r *hop.Record) string {
	out := []string{r.Verb, strings.Trim(r.Resource+"."+r.Group, "."), r.Namespace + "/" + r.Name, "by", r.User, fmt.Sprint(r.Code)}
	if r.Subresource != "" {
		out[1] += "/" + r.Subresource
	}
	if r.Refused != 0 {
		out = append(out, "refused by", r.Refused.String()+":", r.Error)
	} else if r.Rev == 0 || r.UID == "" || r.Error != "" {
		out = append(out, "without revision, or with an error")
	}
	for _, s := range r.Steps {
		if s.Name != "body" {
			out = append(out, fmt.Sprintf("[%s %s %v %t]", s.Hop, s.Name, s.Took.Round(time.Millisecond), s.Failed))
		}
	}
	return strings.Join(out, " ")
}

// TestWritesAreRecorded checks that each write has a record that says who sent it and, if it was refused, which hop refused it and
// why. Reads, dry runs, reviews and writes that change nothing have none.
func TestWritesAreRecorded(t *testing.T) {
	const maps, m = "/api/v1/namespaces/ns/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s","labels":{%s}}%s}`
	body := func(name, labels, more string) string { return fmt.Sprintf(m, name, labels, more) }
	const invalid = `"binaryData":{"a b":""}`
	cases := []struct{ what, who, method, path, body, want string }{
		{"a create", "alice", "POST", maps, body("a", "", ""), "create configmaps ns/a by alice 201"},
		{"a read", "alice", "GET", maps + "/a", "", ""},
		{"a list", "alice", "GET", maps, "", ""},
		{"a dry run", "alice", "POST", maps + "?dryRun=All", body("b", "", ""), ""},
		{"a refused dry run", "alice", "POST", maps + "?dryRun=All", body("b", `"refuse":"Mutate"`, ""), ""},
		{"an update that changes nothing", "alice", "PUT", maps + "/a", body("a", "", ""), ""},
		{"an update", "alice", "PUT", maps + "/a", body("a", `"x":"y"`, ""), "update configmaps ns/a by alice 200"},
		{"a patch", "alice", "PATCH", maps + "/a", `{"data":{"a":"b"}}`, "patch configmaps ns/a by alice 200"},
		{"an unknown client", "", "POST", maps, body("b", "", ""),
			"create configmaps ns/ by  401 refused by authenticate: Unauthorized"},
		{"a user without the right", "mallory", "DELETE", maps + "/a", "",
			`delete configmaps ns/a by mallory 403 refused by authorize: configmaps "a" is forbidden: User "mallory" cannot delete resource "configmaps" in API group "" in the namespace "ns"`},
		{"a user without the right, with a body that cannot be read", "mallory", "POST", maps + "?fieldValidation=what", body("b", "", ""),
			`create configmaps ns/ by mallory 403 refused by authorize: configmaps is forbidden: User "mallory" cannot create resource "configmaps" in API group "" in the namespace "ns"`},
		{"options that cannot be read", "alice", "POST", maps + "?fieldValidation=what", body("b", "", ""),
			`create configmaps ns/ by alice 422 refused by schema: CreateOptions.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "what": supported values: "", "Ignore", "Strict", "Warn"`},
		{"a body that is no object", "alice", "POST", maps, `{"password":"p`,
			"create configmaps ns/ by alice 400 refused by schema: the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input ("},
		{"hop 4", "alice", "POST", maps, body("b", `"refuse":"Mutate"`, ""),
			`create configmaps ns/b by alice 403 refused by mutate: configmaps "b" is forbidden: it says Mutate [mutate RefuseMutate 0s true]`},
		{"hop 5", "alice", "POST", maps, body("b", "", ","+invalid), `create configmaps ns/b by alice 422 refused by schema: ConfigMap "b" is invalid: binaryData[a b]: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')`},
		{"hop 6", "alice", "PUT", maps + "/a", body("a", `"refuse":"Validate"`, ""),
			`update configmaps ns/a by alice 403 refused by validate: configmaps "a" is forbidden: it says Validate [validate RefuseValidate 0s true]`},
		{"a name that is taken", "alice", "POST", maps, body("a", "", ""),
			`create configmaps ns/a by alice 409 refused by commit: configmaps "a" already exists`},
		{"an old revision", "alice", "PUT", maps + "/a", strings.Replace(body("a", "", ""), `"name"`, `"resourceVersion":"1","name"`, 1),
			`update configmaps ns/a by alice 409 refused by commit: Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the latest version and try again`},
		{"an object that does not exist", "alice", "DELETE", maps + "/none", "",
			`delete configmaps ns/none by alice 404 refused by commit: configmaps "none" not found`},
		{"slow plugins", "alice", "POST", maps, body("c", `"slow":"Validate"`, ""),
			"create configmaps ns/c by alice 201 [validate RefuseValidate 1ms false]"},
		{"a Secret", "alice", "POST", "/api/v1/namespaces/ns/secrets",
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"password of mine":"x"}}`,
			"create secrets ns/s by alice 422 refused by schema: Invalid"},
		{"a review", "mallory", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{}}`, ""},
		{"a deletion", "alice", "DELETE", maps + "/c", "", "delete configmaps ns/c by alice 200"},
		{"a scale", "alice", "PUT", "/apis/apps/v1/namespaces/ns/deployments/none/scale",
			`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"none","namespace":"ns"},"spec":{"replicas":2}}`,
			`update deployments.apps/scale ns/none by alice 404 refused by commit: deployments.apps "none" not found`},
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRecordRig(t)
		for _, c := range cases {
			r.Recorder = hop.NewRecorder(10)
			media := "Content-Type: application/json"
			if c.method == "PATCH" {
				media = "Content-Type: application/merge-patch+json"
			}
			w := httptest.NewRecorder()
			r.send(w, c.who, c.method, c.path, strings.NewReader(c.body), media)
			got := ""
			for _, rec := range r.Recorder.Select(func(*hop.Record) bool { return true }) {
				got += describe(&rec)
			}
			want := c.want
			if len(want) > 256 {
				want, got = want[:256], got[:min(len(got), 256)]
			}
			if got != want {
				t.Errorf("%s:\n got %s\nwant %s\nthe answer was %s", c.what, got, want, w.Body)
			}
		}
		synctest.Wait()
	})
}

// TestOriginOfWrites checks that a record says which client sent a write, printable and bounded, and when it arrived.
func TestOriginOfWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecordRig(t)
		start := time.Now()
		r.send(httptest.NewRecorder(), "alice", "POST", configMapsPath, strings.NewReader(`{"metadata":{"name":"a"}}`),
			"Content-Type: application/json",
			"User-Agent: kubectl/v1.37 \x1b[31m", "Audit-Id: audit-1", "Kubectl-Session: s-1", "Kubectl-Command: "+strings.Repeat("kubectl apply ", 100))
		recs := r.Recorder.Select(func(rec *hop.Record) bool { return rec.Name == "a" })
		if len(recs) != 1 || recs[0].Origin == nil {
			t.Fatalf("%+v", recs)
		}
		o := *recs[0].Origin
		if o.Agent != "kubectl/v1.37 ?[31m" || o.AuditID != "audit-1" || o.Session != "s-1" || len(o.Command) != hop.MaxText ||
			!strings.HasPrefix(o.Command, "kubectl apply ") {
			t.Errorf("%+v", o)
		}
		if !recs[0].Start.Equal(start) {
			t.Errorf("it began at %v", recs[0].Start)
		}
		r.create(configMapsResource(), configMap("b"))
		if recs := r.Recorder.Select(func(rec *hop.Record) bool { return rec.Name == "b" }); len(recs) != 1 || recs[0].Origin != nil {
			t.Errorf("a caller in this process: %+v", recs)
		}
		synctest.Wait()
	})
}

// TestWaitingIsRecorded checks that the time that a write waits for its seat, and that a client takes to send the body, is waiting.
func TestWaitingIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 1)
		r.create(configMapsResource(), configMap("warm")) // what is loaded on first use takes a seat, too
		block := make(chan struct{})
		r.Check = []server.Plugin{{Name: "Block", Admit: func(_ context.Context, a *server.Admission) error {
			if a.Name == "first" {
				<-block
			}
			return nil
		}}}
		send := func(name string, body bool) {
			read := &slowReader{Reader: strings.NewReader(fmt.Sprintf(`{"metadata":{"name":%q}}`, name))}
			if body {
				read.delay = 3 * time.Second
			}
			r.send(httptest.NewRecorder(), "alice", "POST", configMapsPath, read, "Content-Type: application/json")
		}
		go send("first", false)
		synctest.Wait()
		go send("second", false)
		time.Sleep(time.Second)
		close(block)
		synctest.Wait()
		send("third", true)
		for name, want := range map[string][2]time.Duration{"second": {0, time.Second}, "third": {3 * time.Second, 0}} {
			recs := r.Recorder.Select(func(rec *hop.Record) bool { return rec.Name == name })
			if len(recs) != 1 {
				t.Errorf("%d records of %s", len(recs), name)
				continue
			}
			if w := recs[0].Wait; w[hop.Authenticate] != want[0] || w[hop.Authorize] != want[1] {
				t.Errorf("%s waited %v", name, w)
			}
			if took := recs[0].Took; took[hop.Authenticate] != want[0] || took[hop.Authorize] != want[1] {
				t.Errorf("%s took %v", name, took)
			}
		}
		synctest.Wait()
	})
}

// slowReader waits before it reads.
type slowReader struct {
	*strings.Reader
	delay time.Duration
}

func (s *slowReader) Read(p []byte) (int, error) {
	time.Sleep(s.delay)
	s.delay = 0
	return s.Reader.Read(p)
}

// TestBodiesAreKept checks that beside the record of a committed write are the bodies of the request and the answer, unless it is of a
// kind that holds secrets, was refused, changed nothing, or bodies are switched off.
func TestBodiesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecordRig(t)
		post := func(path, body string) *hop.Wire {
			r.Recorder = hop.NewRecorder(10)
			r.send(httptest.NewRecorder(), "alice", "POST", path, strings.NewReader(body), "Content-Type: application/json")
			recs := r.Recorder.Select(func(*hop.Record) bool { return true })
			if len(recs) != 1 {
				t.Fatalf("%d records of %s", len(recs), body)
			}
			return recs[0].Wire
		}
		body := `{"metadata":{"name":"a"},"data":{"key":"` + strings.Repeat("v", hop.MaxBody) + `"}}`
		w := post(configMapsPath, body)
		if w == nil || string(w.Request) != body[:hop.MaxBody] || w.RequestSize != len(body) || w.RequestType != "application/json" ||
			w.ResponseType != "application/json" || !strings.HasPrefix(string(w.Response), `{"kind":"ConfigMap"`) ||
			len(w.Response) != hop.MaxBody {
			t.Errorf("%+v", w)
		}
		for what, w := range map[string]*hop.Wire{
			"a Secret":        post("/api/v1/namespaces/ns/secrets", `{"metadata":{"name":"s"}}`),
			"a refused write": post(configMapsPath, `{"metadata":{"name":"b","labels":{"refuse":"Mutate"}}}`),
		} {
			if w != nil {
				t.Errorf("%s: %s and %s are kept", what, w.Request, w.Response)
			}
		}
		r.Recorder = hop.NewRecorder(10)
		send := func() {
			r.send(httptest.NewRecorder(), "alice", "PATCH", configMapsPath+"/a", strings.NewReader(`{"data":{"other":"x"}}`),
				"Content-Type: application/merge-patch+json", "Kubectl-Command: kubectl patch")
		}
		send()
		first := r.Recorder.Select(func(*hop.Record) bool { return true })
		send()
		if again := r.Recorder.Select(func(*hop.Record) bool { return true }); len(again) != 1 || again[0].Wire != first[0].Wire {
			t.Error("a patch that changes nothing has left its bodies")
		}
		synctest.Wait()
	})
}

// TestActionsAreRecorded checks that a binding is recorded as what the scheduler asked for, with all of its hops; each deletion of a
// collection has a record of its own.
func TestActionsAreRecorded(t *testing.T) {
	r := newRecordRig(t)
	pods := runtimeschema.GroupResource{Resource: "pods"}
	pod := r.create(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
	if _, err := r.Client(r.who).Act(t.Context(), pods, "ns", "p", "binding", &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}); err != nil {
		t.Fatal(err)
	}
	recs := r.Recorder.Of(pod.GetUID())
	bound := recs[len(recs)-1]
	if got := describe(&bound); got != "create pods/binding ns/p by tester 200" {
		t.Error(got)
	}
	for _, h := range []hop.Hop{hop.Authorize, hop.Mutate, hop.Validate, hop.Commit} {
		if bound.Took[h] <= 0 {
			t.Errorf("hop %s took no time", h)
		}
	}
	for i := range 20 {
		r.create(configMapsResource(), configMap(fmt.Sprint("m", i)))
	}
	r.Recorder = hop.NewRecorder(100)
	if err := r.Client(r.who).DeleteAll(t.Context(), configMapsResource(), "ns", nil, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deleted := r.Recorder.Select(func(rec *hop.Record) bool { return rec.Verb == "delete" && rec.Rev != 0 && rec.Refused == 0 })
	if len(deleted) != 20 {
		t.Errorf("%d records of 20 deletions", len(deleted))
	}
}

// TestRecorderOff checks that without a recorder requests are served as with one.
func TestRecorderOff(t *testing.T) {
	r := newRecordRig(t)
	r.Recorder = nil
	w := httptest.NewRecorder()
	r.send(w, "alice", "POST", configMapsPath, strings.NewReader(`{"metadata":{"name":"a"}}`), "Content-Type: application/json")
	if w.Code != 201 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	r.send(w, "", "POST", configMapsPath, strings.NewReader(`{}`), "Content-Type: application/json")
	if w.Code != 401 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	r.send(w, "alice", "POST", configMapsPath, strings.NewReader(`{"metadata":{"name":"b","labels":{"refuse":"Mutate"}}}`),
		"Content-Type: application/json")
	if w.Code != 403 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if _, err := r.Client(r.who).Create(t.Context(), configMapsResource(), configMap("a")); err == nil || errors.Is(err, context.Canceled) {
		t.Error("a name is taken twice")
	}
}
