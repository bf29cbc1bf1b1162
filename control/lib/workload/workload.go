// Package workload is what the controllers that own Pods share: Pods from templates, adoption by selector, which Pods are
// active, ready and available, which to delete first, and slow start of many writes. Claim, Create, Delete and Evict write;
// the rest are pure functions.
package workload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// The reasons of the Events, and of the conditions, about Pods of a controller.
const (
	FailedCreate     = "FailedCreate"
	SuccessfulCreate = "SuccessfulCreate"
	FailedDelete     = "FailedDelete"
	SuccessfulDelete = "SuccessfulDelete"
)

// Pod returns a Pod from a template that is controlled by owner. The server generates its name, with that of the owner as
// prefix.
func Pod(template *corev1.PodTemplateSpec, owner kind.Object, gvk schema.GroupVersionKind) *corev1.Pod {
	labels, annotations := maps.Clone(template.Labels), maps.Clone(template.Annotations)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), GenerateName: PodNamePrefix(owner.GetName()),
			Labels: labels, Annotations: annotations, Finalizers: slices.Clone(template.Finalizers),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, gvk)},
		},
		Spec: *template.Spec.DeepCopy(),
	}
}

// PodNamePrefix returns the generateName of an owner's Pods: its own name, followed by a dash if that is a valid prefix.
func PodNamePrefix(owner string) string {
	if prefix := owner + "-"; len(validation.NameIsDNSSubdomain(prefix, true)) == 0 {
		return prefix
	}
	return owner
}

// CheckUnchanged returns a conflict if the view of an owner lags behind the server. A controller calls it before writes that
// would be wrong for a newer state of the owner, such as starting Pods for a Job that has finished.
func CheckUnchanged(ctx context.Context, c *control.Cluster, on schema.GroupResource, owner kind.Object) error {
	now, err := c.Get(ctx, on, owner.GetNamespace(), owner.GetName(), "")
	if err == nil && now.GetResourceVersion() != owner.GetResourceVersion() {
		err = apierrors.NewConflict(on, owner.GetName(), errors.New("the view is behind"))
	}
	return err
}

// Create stores a Pod of an owner and records an Event. It records none about a failure because the namespace is being
// deleted, where every attempt fails.
func Create(ctx context.Context, c *control.Cluster, owner kind.Object, pod *corev1.Pod) (*corev1.Pod, error) {
	if len(pod.Labels) == 0 {
		return nil, errors.New("unable to create pods, no labels")
	}
	made, err := c.Create(ctx, gr.Pods, pod)
	if err != nil {
		if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			c.Event(owner, corev1.EventTypeWarning, FailedCreate, "Error creating: %v", err)
		}
		return nil, err
	}
	c.Event(owner, corev1.EventTypeNormal, SuccessfulCreate, "Created pod: %v", made.GetName())
	return made.(*corev1.Pod), nil
}

// Delete deletes a Pod of an owner, but not another Pod of the same name, and records an Event. It returns the server's
// NotFound error if the Pod was deleted already, which callers usually ignore.
func Delete(ctx context.Context, c *control.Cluster, owner kind.Object, pod *corev1.Pod) error {
	uid := pod.UID
	err := c.Delete(ctx, gr.Pods, pod.Namespace, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	switch {
	case apierrors.IsNotFound(err):
		return err
	case apierrors.IsConflict(err): // another Pod has the name by now, so this one was deleted
		return apierrors.NewNotFound(gr.Pods, pod.Name)
	case err != nil:
		c.Event(owner, corev1.EventTypeWarning, FailedDelete, "Error deleting: %v", err)
		return fmt.Errorf("unable to delete pods: %w", err)
	}
	c.Event(owner, corev1.EventTypeNormal, SuccessfulDelete, "Deleted pod: %v", pod.Name)
	return nil
}
