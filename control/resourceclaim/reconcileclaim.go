package resourceclaim

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
)

// reconcileClaim reconciles a claim: it releases and deletes one that is no longer used.
func reconcileClaim(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	claim, found := control.Get[*resourcev1.ResourceClaim](c, gr.ResourceClaims, k.Namespace, k.Name)
	if !found {
		return 0, nil
	}
	holders, err := reservingPods(ctx, c, claim)
	if err != nil {
		return 0, err
	}
	var owner *corev1.Pod
	if name, _ := generatedFor(claim); name != "" { // if the view does not have the Pod, the garbage collector decides
		owner, _ = control.Get[*corev1.Pod](c, gr.Pods, claim.Namespace, name)
	}
	p := decideClaim(claim, func(name string) *corev1.Pod { return holders[name] }, owner)
	return 0, control.IgnoreNotFound(apply(ctx, c, claim, p))
}

// reservingPods returns the Pods that a claim is reserved for, by name. It asks the server about a Pod that the view does not have,
// because the reservation of a Pod that is just being scheduled must not be removed.
func reservingPods(ctx context.Context, c *control.Cluster, claim *resourcev1.ResourceClaim) (map[string]*corev1.Pod, error) {
	out := map[string]*corev1.Pod{}
	for _, r := range claim.Status.ReservedFor {
		if r.APIGroup != "" || r.Resource != "pods" {
			continue
		}
		pod, found := control.Get[*corev1.Pod](c, gr.Pods, claim.Namespace, r.Name)
		if !found || pod.UID != r.UID {
			o, err := c.Get(ctx, gr.Pods, claim.Namespace, r.Name, "")
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			pod, _ = o.(*corev1.Pod)
		}
		out[r.Name] = pod
	}
	return out, nil
}

func apply(ctx context.Context, c *control.Cluster, claim *resourcev1.ResourceClaim, p claimPlan) error {
	if p.status {
		next := claim.DeepCopy()
		next.Status.ReservedFor = p.reserved
		if p.deallocate {
			next.Status.Allocation = nil
			next.Status.Devices = nil // they belong to the allocation
		}
		o, err := c.Update(ctx, gr.ResourceClaims, next, "status")
		if err != nil {
			return err
		}
		claim = o.(*resourcev1.ResourceClaim)
	}
	if p.release {
		next := claim.DeepCopy()
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
		o, err := c.Update(ctx, gr.ResourceClaims, next, "")
		if err != nil {
			return err
		}
		claim = o.(*resourcev1.ResourceClaim)
	}
	if !p.delete {
		return nil
	}
	if err := c.Delete(ctx, gr.ResourceClaims, claim.Namespace, claim.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &claim.UID}}); err != nil {
		return fmt.Errorf("delete unused generated claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}
