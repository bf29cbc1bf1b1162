package resourceclaim

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// claimPlan is what to do about a claim, in this order.
type claimPlan struct {
	// status says that the reservations or the allocation change.
	status     bool
	reserved   []resourcev1.ResourceClaimConsumerReference
	deallocate bool
	// release says that the claim is no longer protected from deletion.
	release bool
	delete  bool
}

// done says that no container of a Pod runs, or ever will.
func done(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil && p.Spec.NodeName == ""
}

// madeFor is the Pod that a claim was generated for.
func madeFor(c *resourcev1.ResourceClaim) (name string, uid types.UID) {
	if ref := metav1.GetControllerOfNoCopy(c); ref != nil && ref.APIVersion == "v1" && ref.Kind == "Pod" {
		return ref.Name, ref.UID
	}
	return "", ""
}

// decideClaim says what to do about a claim. pod finds a Pod by its name, as sure as can be; owner is the Pod of the name
// that the claim was generated for, if one is known.
func decideClaim(c *resourcev1.ResourceClaim, pod func(name string) *corev1.Pod, owner *corev1.Pod) (p claimPlan) {
	for _, r := range c.Status.ReservedFor {
		if r.APIGroup == "" && r.Resource == "pods" {
			if holder := pod(r.Name); holder == nil || holder.UID != r.UID || done(holder) {
				continue
			}
		}
		p.reserved = append(p.reserved, r) // of consumers that are not Pods nothing is known
	}
	held, unused := slices.Contains(c.Finalizers, resourcev1.Finalizer), len(p.reserved) == 0
	switch {
	case len(p.reserved) < len(c.Status.ReservedFor):
		// What the last user leaves can be allocated anew, somewhere else. What nobody has used yet stays allocated.
		p.status, p.deallocate = true, unused && held
		p.release = held && (p.deallocate || c.Status.Allocation == nil)
	case held && unused && c.DeletionTimestamp != nil:
		p.status, p.deallocate, p.release = c.Status.Allocation != nil, true, true
	}
	if _, uid := madeFor(c); unused && uid != "" && owner != nil && c.DeletionTimestamp == nil {
		p.delete = owner.UID != uid || done(owner)
	}
	return p
}
