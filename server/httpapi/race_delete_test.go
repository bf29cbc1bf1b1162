package httpapi

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/server"
)

// TestDeletionFinishedByAnotherClient checks that a client that deletes a Pod gets the deleted object, not NotFound, when
// a watcher finishes the deletion first.
func TestDeletionFinishedByAnotherClient(t *testing.T) {
	r := newRig(t)
	gr := runtimeschema.GroupResource{Resource: "pods"}
	remove := func(name string) error {
		_, err := r.request("delete", gr.Resource, "ns", name, func(q *server.Request) {
			q.Options.Delete = &metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
		})
		return err
	}
	created := r.create(gr, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "begin"}, Spec: podTemplate().Spec})
	first, err := strconv.ParseInt(created.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	const pods = 50
	var wg sync.WaitGroup
	defer wg.Wait()
	def := r.State.Def(gr)
	wg.Go(func() {
		deleted := 0
		for b, err := range r.store.Watch(t.Context(), def.Prefix(), first) {
			if err != nil {
				return
			}
			for _, c := range b.Changes {
				if len(c.Value) == 0 {
					deleted++
					continue
				}
				if o, err := r.State.Codec.Load(def, c.Pair); err == nil && o.GetDeletionTimestamp() != nil {
					_ = remove(o.GetName())
				}
			}
			if deleted == pods {
				return
			}
		}
	})
	for i := range pods {
		name := fmt.Sprint("p", i)
		r.create(gr, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: podTemplate().Spec})
		if err := remove(name); err != nil {
			t.Errorf("delete %s: %v", name, err)
		}
	}
}
