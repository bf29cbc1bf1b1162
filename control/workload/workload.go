// Package workload is what the controllers that own Pods share: making a Pod from a template, claiming by selector, telling
// which Pods count as active, ready and available, choosing which to delete, and starting many without harm. Deciding is
// pure; only Claim, Create and Delete write.
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
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// The reasons of the Events, and of the conditions, about Pods of a controller.
const (
	FailedCreate     = "FailedCreate"
	SuccessfulCreate = "SuccessfulCreate"
	FailedDelete     = "FailedDelete"
	SuccessfulDelete = "SuccessfulDelete"
)

// Pod makes a Pod of a template, controlled by its owner. The name is left to the server, with the owner's as prefix.
func Pod(template *corev1.PodTemplateSpec, owner kind.Object, gvk schema.GroupVersionKind) *corev1.Pod {
	labels, annotations := maps.Clone(template.Labels), maps.Clone(template.Annotations)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), GenerateName: Prefix(owner.GetName()),
			Labels: labels, Annotations: annotations, Finalizers: slices.Clone(template.Finalizers),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, gvk)},
		},
		Spec: *template.Spec.DeepCopy(),
	}
}

// Prefix is how the names of an owner's Pods begin: its own name, and a dash if that leaves a name that is allowed.
func Prefix(owner string) string {
	if prefix := owner + "-"; len(validation.NameIsDNSSubdomain(prefix, true)) == 0 {
		return prefix
	}
	return owner
}

// Create stores a Pod of an owner and says so in an Event. In a namespace that is going every attempt fails, so that is
// no news.
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

// Delete removes a Pod of an owner and says so in an Event. The Pod must be the one that was meant, not another of its
// name. One that is gone already is an error of the server's words, for the caller to forgive.
func Delete(ctx context.Context, c *control.Cluster, owner kind.Object, pod *corev1.Pod) error {
	uid := pod.UID
	err := c.Delete(ctx, gr.Pods, pod.Namespace, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	switch {
	case apierrors.IsNotFound(err):
		return err
	case apierrors.IsConflict(err): // another Pod has the name by now, so the one meant is gone
		return apierrors.NewNotFound(gr.Pods, pod.Name)
	case err != nil:
		c.Event(owner, corev1.EventTypeWarning, FailedDelete, "Error deleting: %v", err)
		return fmt.Errorf("unable to delete pods: %w", err)
	}
	c.Event(owner, corev1.EventTypeNormal, SuccessfulDelete, "Deleted pod: %v", pod.Name)
	return nil
}
