// Package job runs the Pods of Jobs until enough of them have succeeded, or too many have failed. It also takes the tracking
// finalizer from Pods that no Job will count any more.
package job

import (
	"iter"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/control"
	"proa.dev/control/workload"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

var jobKind = batchv1.SchemeGroupVersion.WithKind("Job")

// Controller returns the loop. Its keys are Jobs, and of a namespace the key without a name: that stands for its Pods that are tracked though
// nobody owns them.
func Controller() control.Controller {
	r := &reconciler{known: map[control.Key]record{}}
	return control.Controller{
		Name: "job-controller", For: gr.Jobs, Workers: 5,
		Triggers: []control.Trigger{{On: gr.Pods, Keys: wake(), When: workload.Matters}},
		Writes: []control.Write{
			{On: gr.Jobs, Do: "get update/status update/finalizers"},
			{On: gr.Pods, Do: "get create delete update"},
		},
		Reconcile: r.reconcile,
	}
}

// wake wakes the Job of a Pod, those that might adopt it, or the key of what nobody owns.
func wake() func(*control.Cluster, kind.Object) iter.Seq[control.Key] {
	owners := workload.Wake(jobKind.GroupKind(), gr.Jobs, selectorOf)
	return func(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
		return func(yield func(control.Key) bool) {
			for k := range owners(c, o) {
				if !yield(k) {
					return
				}
			}
			if p, ok := o.(*corev1.Pod); ok && hasFinalizer(p) && metav1.GetControllerOfNoCopy(p) == nil {
				yield(control.Key{Namespace: p.Namespace})
			}
		}
	}
}

func selectorOf(o kind.Object) labels.Selector {
	j, ok := o.(*batchv1.Job)
	if !ok {
		return nil
	}
	return workload.Selector(j.Spec.Selector)
}

// record is the back-off of a Job. It is remembered only to be more exact: after a restart the Pods that are
// there tell nearly the same.
type record struct {
	uid     types.UID
	backoff backoff
}

type reconciler struct {
	mu    sync.Mutex // guards known
	known map[control.Key]record
}

func (r *reconciler) recall(k control.Key, uid types.UID) *backoff {
	r.mu.Lock()
	defer r.mu.Unlock()
	if have, ok := r.known[k]; ok && have.uid == uid {
		return &have.backoff
	}
	return nil
}

func (r *reconciler) remember(k control.Key, uid types.UID, b backoff) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known[k] = record{uid, b}
}

func (r *reconciler) forget(k control.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, k)
}
