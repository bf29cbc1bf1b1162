package server

import (
	"bytes"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kv"
	"proa.dev/server/schema"
	"proa.dev/server/state"
)

// newPipeline returns a pipeline without a store, which can decode and patch, and the descriptor of Pods.
func newPipeline(t testing.TB) (*Server, *kind.Def) {
	t.Helper()
	scheme, err := kinds.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	defs := kinds.All()
	st := state.New(t.Context(), codec.New(scheme), nil, defs, slog.New(slog.DiscardHandler))
	v := state.NewVersions(scheme, defs)
	s := New(Config{State: st, Owner: schema.New(scheme, v, v), Log: slog.New(slog.DiscardHandler)})
	for _, d := range defs {
		if d.Kind == "Pod" {
			return s, d
		}
	}
	t.Fatal("no pods")
	return nil, nil
}

func FuzzDecode(f *testing.F) {
	s, pods := newPipeline(f)
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

func FuzzPatch(f *testing.F) {
	s, pods := newPipeline(f)
	kindsOf := []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType}
	f.Add(byte(0), []byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`))
	f.Add(byte(1), []byte(`{"spec":{"containers":null}}`))
	f.Add(byte(2), []byte(`{"spec":{"containers":[{"name":"a","image":"c"},{"$patch":"delete","name":"b"}]}}`))
	f.Fuzz(func(_ *testing.T, k byte, body []byte) {
		r := &Request{Verb: "patch", Def: pods, Name: "p", Patch: kindsOf[int(k)%len(kindsOf)], Body: body}
		change, err := s.readPatch(r)
		if err != nil {
			return
		}
		old := pods.New().(*corev1.Pod)
		old.Name = "p"
		old.Spec.Containers = []corev1.Container{{Name: "a", Image: "b"}, {Name: "b"}}
		old.SetGroupVersionKind(pods.GroupVersionKind)
		if _, err := change.apply(old); err != nil {
			return
		}
	})
}

// FuzzApply checks that applying the same valid configuration a second time changes nothing.
func FuzzApply(f *testing.F) {
	s, pods := newPipeline(f)
	f.Add([]byte("apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {a: b}\nspec:\n  containers:\n  - name: a\n    image: c\n"), true)
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"b","ports":[{"containerPort":80}]}]}}`), false)
	f.Add([]byte("spec: &a [*a]"), false)
	f.Fuzz(func(t *testing.T, body []byte, force bool) {
		r := &Request{Verb: "patch", Def: pods, Namespace: "ns", Name: "p", Patch: types.ApplyPatchType, Body: body}
		r.Options.Manager, r.Options.Force = "fuzz", force
		change, err := s.readPatch(r)
		if err != nil {
			return
		}
		old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "b"}, {Name: "b"}}}}
		old.SetGroupVersionKind(pods.GroupVersionKind)
		pods.Default(old)
		once, err := change.apply(s.updateFieldOwners(&Request{Verb: "create", Def: pods, Options: Options{Manager: "first"}}, pods.New(),
			old))
		if err != nil || len(pods.Validate(once, nil)) > 0 {
			return
		}
		was, err := s.State.Codec.Store(pods, once)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := change.apply(once.DeepCopyObject().(kind.Object))
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
