package server

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds"
	"proa.dev/kinds/codec"
	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/schema"
)

// bench is a server without a store: enough to decode and patch.
func bench(t testing.TB) (*Server, *kind.Def) {
	t.Helper()
	scheme, err := kinds.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	defs := kinds.All()
	st := &State{Codec: codec.New(scheme), ctx: t.Context()}
	st.defs.Store(newTable(defs))
	v := NewVersions(scheme, defs)
	s := New(Config{State: st, Owner: schema.New(scheme, v, v), Log: slog.New(slog.DiscardHandler)})
	for _, d := range defs {
		if d.Kind == "Pod" {
			return s, d
		}
	}
	t.Fatal("no pods")
	return nil, nil
}

func FuzzContinueToken(f *testing.F) {
	f.Add(token{Rev: 7, Start: "ns/a\x00"}.encode())
	f.Add("e30")
	f.Add("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8uLi94In0")
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := decodeToken(s)
		if err != nil {
			return
		}
		if strings.Contains("/"+tok.Start+"/", "/../") {
			t.Errorf("a token climbs: %q", tok.Start)
		}
		again, err := decodeToken(token{Rev: tok.Rev, Start: tok.Start}.encode())
		if err != nil || again.Start != tok.Start || again.Rev != tok.Rev {
			t.Errorf("%+v does not survive: %+v, %v", tok, again, err)
		}
	})
}

func FuzzRoute(f *testing.F) {
	for _, p := range []string{"/api/v1/pods", "/apis/apps/v1/namespaces/x/deployments/y/scale", "/api/v1/namespaces/x/status", "/api/v1/watch/namespaces/a/pods", "/api/v1/namespaces", "///", "/api/v1/"} {
		f.Add("GET", p)
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		r := routeOf(method, path)
		if !r.resource {
			return
		}
		if strings.ContainsRune(r.name, '/') || strings.ContainsRune(r.namespace, '/') {
			t.Errorf("a name with a slash: %+v", r)
		}
		r.sound()
	})
}

func FuzzSelectors(f *testing.F) {
	f.Add("a=b,c!=d,e in (f,g),!h", "metadata.name=x,status.phase!=Running")
	f.Add("a notin (", "spec.nodeName==")
	_, pods := bench(f)
	pod := pods.New()
	pod.SetLabels(map[string]string{"a": "b", "e": "f"})
	f.Fuzz(func(_ *testing.T, label, field string) {
		r := &Request{Verb: "list", Def: pods}
		if r.parse(url.Values{"labelSelector": {label}, "fieldSelector": {field}}) != nil {
			return
		}
		if keep := r.Options.List.keep(pods); keep != nil {
			keep(pod)
		}
	})
}

func FuzzDecode(f *testing.F) {
	s, pods := bench(f)
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}}}}
	pod.SetGroupVersionKind(pods.GroupVersionKind)
	for m := codec.JSON; m <= codec.Proto; m++ {
		var buf bytes.Buffer
		if err := s.State.Codec.Append(&buf, m, pod); err != nil {
			f.Fatal(err)
		}
		f.Add(byte(m), buf.Bytes())
	}
	f.Fuzz(func(t *testing.T, m byte, body []byte) {
		r := &Request{Verb: "create", Def: pods, Media: codec.Media(m%3 + 1), Body: body}
		obj, err := s.decode(r)
		if err != nil {
			return
		}
		// What was decoded can be stored and read back.
		b, err := s.State.Codec.Store(pods, obj)
		if err != nil {
			t.Fatalf("decoded but cannot be stored: %v", err)
		}
		if _, err := s.State.Codec.Load(pods, kv.Pair{Value: b, Rev: 1}); err != nil {
			t.Fatalf("stored but cannot be read: %v", err)
		}
		pods.Prepare(obj, nil)
		pods.Validate(obj, nil)
	})
}

// FuzzDeleteOptions: whatever a deletion says, it is refused or can be acted on.
func FuzzDeleteOptions(f *testing.F) {
	f.Add("application/json", []byte(`{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":-1,"propagationPolicy":"Orphan","dryRun":["All"]}`), "")
	f.Add("application/yaml", []byte("preconditions: {uid: x, resourceVersion: '1'}"), "")
	f.Add("application/vnd.kubernetes.protobuf", []byte("k8s\x00\n"), "")
	f.Add("", []byte(nil), "gracePeriodSeconds=5&dryRun=All&propagationPolicy=Foreground")
	s, pods := bench(f)
	f.Fuzz(func(t *testing.T, contentType string, body []byte, query string) {
		q, _ := url.ParseQuery(query) // what can be read of it
		r := &Request{Verb: "delete", Def: pods, Body: body}
		if s.readDelete(r, q, contentType) != nil {
			return
		}
		o := r.Options.Delete
		if o == nil || r.Options.DryRun != (len(o.DryRun) > 0) {
			t.Fatalf("%+v was read", r.Options)
		}
		pod := &corev1.Pod{}
		collectors(pods, pod, o)
		if begin(pods, pod, o, time.Unix(0, 0)); pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds < 0 {
			t.Errorf("a grace of %d seconds", *pod.DeletionGracePeriodSeconds)
		}
	})
}

func FuzzPatch(f *testing.F) {
	s, pods := bench(f)
	kindsOf := []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType}
	f.Add(byte(0), []byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`))
	f.Add(byte(1), []byte(`{"spec":{"containers":null}}`))
	f.Add(byte(2), []byte(`{"spec":{"containers":[{"name":"a","image":"c"},{"$patch":"delete","name":"b"}]}}`))
	f.Fuzz(func(_ *testing.T, k byte, body []byte) {
		r := &Request{Verb: "patch", Def: pods, Name: "p", Patch: kindsOf[int(k)%len(kindsOf)], Body: body}
		change, err := s.patch(r)
		if err != nil {
			return
		}
		old := pods.New().(*corev1.Pod)
		old.Name = "p"
		old.Spec.Containers = []corev1.Container{{Name: "a", Image: "b"}, {Name: "b"}}
		old.SetGroupVersionKind(pods.GroupVersionKind)
		if _, err := change.make(old); err != nil {
			return
		}
	})
}

// What is applied twice and valid is there once: the second time changes nothing.
func FuzzApply(f *testing.F) {
	s, pods := bench(f)
	f.Add([]byte("apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {a: b}\nspec:\n  containers:\n  - name: a\n    image: c\n"), true)
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"b","ports":[{"containerPort":80}]}]}}`), false)
	f.Add([]byte("spec: &a [*a]"), false)
	f.Fuzz(func(t *testing.T, body []byte, force bool) {
		r := &Request{Verb: "patch", Def: pods, Namespace: "ns", Name: "p", Patch: types.ApplyPatchType, Body: body}
		r.Options.Manager, r.Options.Force = "fuzz", force
		change, err := s.patch(r)
		if err != nil {
			return
		}
		old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}, {Name: "b"}}}}
		old.SetGroupVersionKind(pods.GroupVersionKind)
		pods.Default(old)
		once, err := change.make(s.own(&Request{Verb: "create", Def: pods, Options: Options{Manager: "first"}}, pods.New(), old))
		if err != nil || len(pods.Validate(once, nil)) > 0 {
			return
		}
		was, err := s.State.Codec.Store(pods, once)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := change.make(once.DeepCopyObject().(kind.Object))
		if err != nil {
			t.Fatalf("what could be applied cannot be applied again: %v", err)
		}
		is, err := s.State.Codec.Store(pods, twice)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(was, is) {
			t.Errorf("the second time changed something: %s, then %s", was, is)
		}
	})
}

func FuzzNegotiate(f *testing.F) {
	f.Add("application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
	f.Add("application/vnd.kubernetes.protobuf, */*")
	f.Add(";;;,=,application/*;as")
	f.Fuzz(func(_ *testing.T, accept string) {
		req := httptest.NewRequest("GET", "/api/v1/pods", nil)
		req.Header.Set("Accept", accept)
		_, _ = negotiate(req, true, false, false)
		wantsAggregated(req)
	})
}
