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
	"proa.dev/control/workload"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// tracked finds Pods with the finalizer by the key of the Job that controls them; the key has no name for those that nobody
// controls.
func tracked() client.Index {
	return client.Index{Name: "tracked", Of: func(o kind.Object) []string {
		p, ok := o.(*corev1.Pod)
		if !ok || !hasFinalizer(p) {
			return nil
		}
		ref := metav1.GetControllerOfNoCopy(p)
		if ref == nil {
			return []string{p.Namespace + "/"}
		}
		if ref.Kind != jobKind.Kind || ref.APIVersion != batchv1.SchemeGroupVersion.String() {
			return nil // somebody else's, who may have his reasons
		}
		return []string{p.Namespace + "/" + ref.Name}
	}}
}

// sweep takes the finalizer from the Pods of a key that no Job will count: nobody owns them, or the Job is gone or
// finished. j is nil if the view has no such Job.
func sweep(ctx context.Context, c *control.Cluster, k control.Key, j *batchv1.Job) error {
	var stray []*corev1.Pod
	counted := map[types.UID]bool{} // by the UIDs of owners
	for p := range control.By[*corev1.Pod](c, gr.Pods, tracked(), k.Namespace+"/"+k.Name) {
		if ref := metav1.GetControllerOfNoCopy(p); ref != nil {
			if _, known := counted[ref.UID]; !known {
				owner, err := jobOf(ctx, c, p.Namespace, ref, j)
				if err != nil {
					return err
				}
				counted[ref.UID] = owner != nil && counts(owner)
			}
			if counted[ref.UID] {
				continue
			}
		}
		stray = append(stray, p)
	}
	_, err := workload.Together(len(stray), func(i int) error {
		// With the version of the view: a Job that has adopted the Pod meanwhile counts on the finalizer.
		_, err := c.Update(ctx, gr.Pods, untracked(stray[i]), "")
		return control.Gone(err)
	})
	return err
}

// jobOf is the Job of a reference, or nil if that is gone. A view that is behind may not have it yet, so the server is asked
// before a Pod is given up.
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

// counts says that somebody still counts the Pods of a Job.
func counts(j *batchv1.Job) bool {
	return !finished(j) || managedElsewhere(j)
}
