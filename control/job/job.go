// Package job runs the Pods of Jobs until enough of them have succeeded, or too many have failed. It also removes the tracking
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
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

var jobKind = batchv1.SchemeGroupVersion.WithKind("Job")

// Controller returns the controller. Its keys are Jobs, and namespaces with an empty name, which stand for the Pods of a
// namespace that have the tracking finalizer but no owner.
func Controller() control.Controller {
	r := &reconciler{backoffs: map[control.Key]jobBackoff{}}
	return control.Controller{
		Name: "job-controller", For: gr.Jobs, Workers: 5,
		Triggers: []control.Trigger{{On: gr.Pods, Keys: keysOfPod(), When: workload.WakesOwners}},
		Writes: []control.Write{
			{On: gr.Jobs, Do: "get update/status update/finalizers"},
			{On: gr.Pods, Do: "get create delete update"},
		},
		Reconcile: r.reconcile,
	}
}

// keysOfPod yields the Job of a Pod, the Jobs that might adopt it and, for a tracked Pod without an owner, the key of its namespace.
func keysOfPod() func(*control.Cluster, kind.Object) iter.Seq[control.Key] {
	owners := workload.WakeOwners(jobKind.GroupKind(), gr.Jobs, selectorOf)
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

// jobBackoff is the back-off of a Job. It is kept in memory to be more exact: after a restart it is computed from the Pods that
// still exist, which gives nearly the same.
type jobBackoff struct {
	uid     types.UID
	backoff backoff
}

type reconciler struct {
	mu       sync.Mutex // guards backoffs
	backoffs map[control.Key]jobBackoff
}

func (r *reconciler) backoffOf(k control.Key, uid types.UID) *backoff {
	r.mu.Lock()
	defer r.mu.Unlock()
	if have, ok := r.backoffs[k]; ok && have.uid == uid {
		return &have.backoff
	}
	return nil
}

func (r *reconciler) setBackoff(k control.Key, uid types.UID, b backoff) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backoffs[k] = jobBackoff{uid, b}
}

func (r *reconciler) forget(k control.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.backoffs, k)
}
