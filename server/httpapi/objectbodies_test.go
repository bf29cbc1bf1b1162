package httpapi

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
)

// newestWire returns the bodies of the newest write of an object.
func newestWire(t *testing.T, r *rig, obj kind.Object) *hop.Wire {
	t.Helper()
	recs := r.Recorder.Of(obj.GetUID())
	if len(recs) == 0 {
		t.Fatal("the write is not recorded")
	}
	return slices.MaxFunc(recs, func(a, b hop.Record) int { return int(a.Rev - b.Rev) }).Wire
}

// bodies returns the request and the answer of a caller in this process as JSON.
func bodies(t *testing.T, w *hop.Wire) (request, response string) {
	t.Helper()
	if w == nil || !w.InProcess || w.RequestJSON == nil || w.ResponseJSON == nil {
		t.Fatalf("the objects are not kept: %+v", w)
	}
	in, err := w.RequestJSON(w.Request)
	if err != nil {
		t.Fatal(err)
	}
	out, err := w.ResponseJSON(w.Response)
	if err != nil {
		t.Fatal(err)
	}
	return string(in), string(out)
}

// TestObjectsOfCallersInThisProcess checks that beside the record of a write without HTTP are the object as it was handed over and the
// object that was answered: of creates, updates, a status, a binding and a deletion. What the caller does to its object later is not seen.
func TestObjectsOfCallersInThisProcess(t *testing.T) {
	r := newRecordRig(t)
	c, pods := r.Client(r.who), runtimeschema.GroupResource{Resource: "pods"}
	check := func(what string, obj kind.Object, inRequest, notInRequest, inAnswer string) {
		t.Helper()
		request, answer := bodies(t, newestWire(t, r, obj))
		if !strings.Contains(request, inRequest) || strings.Contains(request, notInRequest) || !strings.Contains(answer, inAnswer) {
			t.Errorf("%s was handed over as %s and answered with %s", what, request, answer)
		}
	}
	mine := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	pod, err := c.Create(t.Context(), pods, mine)
	if err != nil {
		t.Fatal(err)
	}
	mine.Spec.Containers[0].Image = "another"
	check("a new Pod", pod, `"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"`, `"uid"`, `"uid":"`+string(pod.GetUID()))
	check("a new Pod", pod, `"image":"i"`, "terminationMessagePath", "terminationMessagePath")

	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"},
		Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	if _, err := c.Act(t.Context(), pods, "ns", "p", "binding", binding); err != nil {
		t.Fatal(err)
	}
	check("a binding", pod, `{"kind":"Binding","apiVersion":"v1"`, "containers", `"status":"Success"`)
	check("a binding", pod, `"target":{"kind":"Node","name":"n1"}`, "containers", `"code":201`)

	bound, err := c.Get(t.Context(), pods, "ns", "p", "")
	if err != nil {
		t.Fatal(err)
	}
	bound.(*corev1.Pod).Status.Phase = corev1.PodRunning
	if _, err := c.Update(t.Context(), pods, bound, "status"); err != nil {
		t.Fatal(err)
	}
	check("a status", pod, `"phase":"Running"`, "another", `"phase":"Running"`)

	zero := int64(0)
	if err := c.Delete(t.Context(), pods, "ns", "p", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	check("a deletion", pod, `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}`, "containers", `"name":"p"`)
}

// TestObjectsThatAreNotKept checks that of Secrets nothing is kept, of writes that were refused or changed nothing neither, and of a large
// object only its size.
func TestObjectsThatAreNotKept(t *testing.T) {
	r := newRecordRig(t)
	c := r.Client(r.who)
	secret, err := c.Create(t.Context(), runtimeschema.GroupResource{Resource: "secrets"}, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Data: map[string][]byte{"password": []byte("hunter2")}})
	if err != nil {
		t.Fatal(err)
	}
	if w := newestWire(t, r, secret); w != nil {
		t.Errorf("of a Secret are kept %q and %q", w.Request, w.Response)
	}
	large := configMap("large")
	large.Data = map[string]string{"a": strings.Repeat("x", hop.MaxBody)}
	made, err := c.Create(t.Context(), configMapsResource(), large)
	if err != nil {
		t.Fatal(err)
	}
	if w := newestWire(t, r, made); w == nil || w.Request != nil || w.RequestJSON != nil || w.RequestSize <= hop.MaxBody ||
		w.Response != nil || w.ResponseSize <= w.RequestSize {
		t.Errorf("of a large object are kept %+v", w)
	}
	small, err := c.Create(t.Context(), configMapsResource(), configMap("small"))
	if err != nil {
		t.Fatal(err)
	}
	before := newestWire(t, r, small)
	if _, err := c.Update(t.Context(), configMapsResource(), small, ""); err != nil {
		t.Fatal(err)
	}
	if newestWire(t, r, small) != before {
		t.Error("an update that changes nothing has left its bodies")
	}
	small.SetLabels(map[string]string{"refuse": "Mutate"})
	if _, err := c.Update(t.Context(), configMapsResource(), small, ""); err == nil {
		t.Fatal("the update was not refused")
	}
	for _, rec := range r.Recorder.Select(func(rec *hop.Record) bool { return rec.Refused != 0 }) {
		if rec.Wire != nil {
			t.Errorf("of a refused write are kept %q and %q", rec.Wire.Request, rec.Wire.Response)
		}
	}
	r.Recorder.NoBodies = true
	off, err := c.Create(t.Context(), configMapsResource(), configMap("off"))
	if err != nil {
		t.Fatal(err)
	}
	if newestWire(t, r, off) != nil {
		t.Error("objects are kept although bodies are switched off")
	}
	r.send(httptest.NewRecorder(), "alice", "POST", configMapsPath, strings.NewReader(`{"metadata":{"name":"off-http"}}`),
		"Content-Type: application/json")
	recs := r.Recorder.Select(func(rec *hop.Record) bool { return rec.Name == "off-http" })
	if len(recs) != 1 || recs[0].Wire != nil {
		t.Error("bodies are kept although they are switched off")
	}
}

// TestBodiesOfActions checks that the bodies of a binding over HTTP are kept, as a scheduler in another process sends them, and those of a
// status, as the agent of another machine sends it.
func TestBodiesOfActions(t *testing.T) {
	r := newRecordRig(t)
	pod := r.create(runtimeschema.GroupResource{Resource: "pods"}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
	body := `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"},"target":{"kind":"Node","name":"n1"}}`
	r.send(httptest.NewRecorder(), "alice", "POST", "/api/v1/namespaces/ns/pods/p/binding", strings.NewReader(body),
		"Content-Type: application/json")
	w := newestWire(t, r, pod)
	if w == nil || w.InProcess || string(w.Request) != body || !strings.Contains(string(w.Response), "Success") {
		t.Errorf("%+v", w)
	}
	body = `{"status":{"phase":"Running"}}`
	r.send(httptest.NewRecorder(), "system:node:n1", "PATCH", "/api/v1/namespaces/ns/pods/p/status", strings.NewReader(body),
		"Content-Type: application/strategic-merge-patch+json")
	w = newestWire(t, r, pod)
	if w == nil || w.InProcess || string(w.Request) != body || !strings.Contains(string(w.Response), "Running") {
		t.Errorf("%+v", w)
	}
}

// BenchmarkObjects measures creates of Pods of a caller in this process, one after the other, without a disk: when their objects are kept
// beside the records of writes that are recorded in detail, and when none are.
func BenchmarkObjects(b *testing.B) {
	for _, kept := range []string{"none", "kept", "none", "kept"} {
		b.Run(kept, func(b *testing.B) {
			r := newMemoryRig(b, 100)
			r.Recorder = hop.NewRecorder(8192)
			r.Recorder.NoBodies = kept == "none"
			c, pods := r.Client(r.who), runtimeschema.GroupResource{Resource: "pods"}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("p", n)},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/web:1"}}}}
				if _, err := c.Create(b.Context(), pods, pod); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
