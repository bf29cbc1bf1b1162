package resourceclaim

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// claimPlan is what to do with a claim, in this order.
type claimPlan struct {
	// status is true if the reservations or the allocation change.
	status     bool
	reserved   []resourcev1.ResourceClaimConsumerReference
	deallocate bool
	// release is true if the finalizer is to be removed.
	release bool
	delete  bool
}

// hasEnded reports whether no container of a Pod runs or will run.
func hasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil &&
		p.Spec.NodeName == ""
}

// generatedFor returns the Pod that a claim was generated for.
func generatedFor(c *resourcev1.ResourceClaim) (name string, uid types.UID) {
	if ref := metav1.GetControllerOfNoCopy(c); ref != nil && ref.APIVersion == "v1" && ref.Kind == "Pod" {
		return ref.Name, ref.UID
	}
	return "", ""
}

// decideClaim returns what to do with a claim. pod returns a Pod by its name, from the server if the view does not have it;
// owner is the Pod with the name of the one that the claim was generated for, or nil.
func decideClaim(c *resourcev1.ResourceClaim, pod func(name string) *corev1.Pod, owner *corev1.Pod) (p claimPlan) {
	for _, r := range c.Status.ReservedFor {
		if r.APIGroup == "" && r.Resource == "pods" {
			if holder := pod(r.Name); holder == nil || holder.UID != r.UID || hasEnded(holder) {
				continue
			}
		}
		p.reserved = append(p.reserved, r) // whether consumers other than Pods exist is not known
	}
	hasFinalizer, unused := slices.Contains(c.Finalizers, resourcev1.Finalizer), len(p.reserved) == 0
	switch {
	case len(p.reserved) < len(c.Status.ReservedFor):
		// When the last consumer ends, the claim is deallocated. A claim that was never reserved stays allocated.
		p.status, p.deallocate = true, unused && hasFinalizer
		p.release = hasFinalizer && (p.deallocate || c.Status.Allocation == nil)
	case hasFinalizer && unused && c.DeletionTimestamp != nil:
		p.status, p.deallocate, p.release = c.Status.Allocation != nil, true, true
	}
	if _, uid := generatedFor(c); unused && uid != "" && owner != nil && c.DeletionTimestamp == nil {
		p.delete = owner.UID != uid || hasEnded(owner)
	}
	return p
}
