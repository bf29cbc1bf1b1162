// Package ephemeralvolume creates the PersistentVolumeClaims of Pods' generic ephemeral volumes. A claim is owned by its Pod
// and is garbage collected with it.
package ephemeralvolume

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Controller returns the controller.
func Controller() control.Controller {
	return control.Controller{
		Name: "ephemeral-volume-controller", Component: "ephemeral_volume", For: gr.Pods, Workers: 5,
		When: func(old, now kind.Object) bool { // the volumes of a Pod never change
			return old == nil && now != nil && len(claimNames(now.(*corev1.Pod))) > 0
		},
		Triggers: []control.Trigger{{
			On: gr.PersistentVolumeClaims, Keys: podsUsing,
			When: func(_, now kind.Object) bool { return now == nil },
		}},
		Writes:    []control.Write{{On: gr.PersistentVolumeClaims, Do: "create"}, {On: gr.Pods, Do: "update/finalizers"}},
		Reconcile: reconcile,
	}
}

func reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	pod, found := control.Get[*corev1.Pod](c, gr.Pods, k.Namespace, k.Name)
	if !found || pod.DeletionTimestamp != nil {
		return 0, nil
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		claim, _ := control.Get[*corev1.PersistentVolumeClaim](c, gr.PersistentVolumeClaims, pod.Namespace, claimName(pod, v))
		want, err := decide(pod, v, claim)
		if want != nil {
			if _, err = c.Create(ctx, gr.PersistentVolumeClaims, want); err != nil {
				err = fmt.Errorf("create PVC %s: %w", want.Name, err)
			}
		}
		switch {
		case err == nil:
		case apierrors.IsAlreadyExists(err): // the view does not show it yet, and so not its owner
			return 0, err
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause): // the Pod will be deleted, too
			return 0, nil
		case errors.Is(err, errForeign):
			c.Event(pod, corev1.EventTypeWarning, "FailedBinding", "ephemeral volume %s: %v", v.Name, err)
			return 0, nil // until that claim is deleted
		default:
			c.Event(pod, corev1.EventTypeWarning, "FailedBinding", "ephemeral volume %s: %v", v.Name, err)
			return 0, fmt.Errorf("pod %s/%s, ephemeral volume %s: %w", pod.Namespace, pod.Name, v.Name, err)
		}
	}
	return 0, nil
}

var errForeign = errors.New("pod is not owner")

// decide returns the claim to create for a volume of a Pod, or nil when it exists.
func decide(pod *corev1.Pod, v *corev1.Volume, have *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	if have != nil {
		if !metav1.IsControlledBy(have, pod) {
			return nil, fmt.Errorf("PVC %s/%s was not created for pod %s/%s (%w)", have.Namespace, have.Name, pod.Namespace, pod.Name,
				errForeign)
		}
		return nil, nil
	}
	t := v.Ephemeral.VolumeClaimTemplate
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: claimName(pod, v), Annotations: maps.Clone(t.Annotations), Labels: maps.Clone(t.Labels),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: *t.Spec.DeepCopy(),
	}, nil
}

func claimName(pod *corev1.Pod, v *corev1.Volume) string { return pod.Name + "-" + v.Name }

// claimNames returns the names of the claims of a Pod's ephemeral volumes.
func claimNames(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Ephemeral != nil {
			names = append(names, claimName(pod, v))
		}
	}
	return names
}

// podsUsing yields the Pods with an ephemeral volume that the deleted claim was for, or whose name it had taken.
func podsUsing(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for pod := range c.View(gr.Pods).By(byOwnClaim(), o.GetNamespace()+"/"+o.GetName()) {
			if !yield(control.KeyOf(pod)) {
				return
			}
		}
	}
}

// byOwnClaim indexes Pods by the claims of their ephemeral volumes.
func byOwnClaim() client.Index {
	return client.Index{Name: "ownClaim", Values: func(o kind.Object) (out []string) {
		for _, name := range claimNames(o.(*corev1.Pod)) {
			out = append(out, o.GetNamespace()+"/"+name)
		}
		return out
	}}
}
