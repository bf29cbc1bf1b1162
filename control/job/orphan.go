package job

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// byTrackingJob indexes Pods with the tracking finalizer by the key of the Job that controls them; the key of Pods without a
// controller has no name.
func byTrackingJob() client.Index {
	return client.Index{Name: "tracked", Values: func(o kind.Object) []string {
		p, ok := o.(*corev1.Pod)
		if !ok || !hasFinalizer(p) {
			return nil
		}
		ref := metav1.GetControllerOfNoCopy(p)
		if ref == nil {
			return []string{p.Namespace + "/"}
		}
		if ref.Kind != jobKind.Kind || ref.APIVersion != batchv1.SchemeGroupVersion.String() {
			return nil // another controller manages the finalizer
		}
		return []string{p.Namespace + "/" + ref.Name}
	}}
}

// removeOrphanFinalizers removes the finalizer from the Pods of a key that no Job will count: they have no owner, or
// the Job was deleted or has finished. j is nil if the view has no such Job.
func removeOrphanFinalizers(ctx context.Context, c *control.Cluster, k control.Key, j *batchv1.Job) error {
	var stray []*corev1.Pod
	counted := map[types.UID]bool{} // by the UIDs of owners
	for p := range control.By[*corev1.Pod](c, gr.Pods, byTrackingJob(), k.Namespace+"/"+k.Name) {
		if ref := metav1.GetControllerOfNoCopy(p); ref != nil {
			if _, known := counted[ref.UID]; !known {
				owner, err := jobOf(ctx, c, p.Namespace, ref, j)
				if err != nil {
					return err
				}
				counted[ref.UID] = owner != nil && countsPods(owner)
			}
			if counted[ref.UID] {
				continue
			}
		}
		stray = append(stray, p)
	}
	_, err := workload.Parallel(len(stray), func(i int) error {
		// The write has the resourceVersion of the view, and conflicts if a Job has adopted the Pod meanwhile.
		_, err := c.Update(ctx, gr.Pods, withoutFinalizer(stray[i]), "")
		return control.IgnoreNotFound(err)
	})
	return err
}

// jobOf returns the Job of a reference, or nil if it does not exist. It asks the server, because the view may lag behind.
func jobOf(ctx context.Context, c *control.Cluster, namespace string, ref *metav1.OwnerReference, seen *batchv1.Job) (*batchv1.Job, error) {
	if seen != nil && seen.UID == ref.UID {
		return seen, nil
	}
	now, err := c.Get(ctx, gr.Jobs, namespace, ref.Name, "")
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if j, is := now.(*batchv1.Job); err == nil && is && j.UID == ref.UID {
		return j, nil
	}
	return nil, err
}

// countsPods reports whether the Pods of a Job are still counted.
func countsPods(j *batchv1.Job) bool {
	return !isFinished(j) || isManagedByOther(j)
}
