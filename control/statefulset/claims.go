package statefulset

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

func claimName(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, ordinal int) string {
	return template.Name + "-" + set.Name + "-" + strconv.Itoa(ordinal)
}

// newClaim returns the claim of a template for one Pod. It has the owner of the retention policy from the beginning, so that
// it is deleted with the set even if the Pod is never created.
func newClaim(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, pod *corev1.Pod) *corev1.PersistentVolumeClaim {
	n := ordinal(set, pod)
	claim := template.DeepCopy()
	claim.Name = claimName(set, template, n)
	claim.Namespace = set.Namespace
	if claim.Labels == nil {
		claim.Labels = map[string]string{}
	}
	maps.Copy(claim.Labels, set.Spec.Selector.MatchLabels)
	claim.OwnerReferences, _ = wantedOwners(claim, set, pod)
	return claim
}

// claims adds the claims of its Pod to a step: missing ones to create, if missing is true, and existing ones whose owners do
// not match the retention policy.
func (s *state) claims(st *step, missing bool) {
	n := ordinal(s.set, st.pod)
	for i := range s.set.Spec.VolumeClaimTemplates {
		template := &s.set.Spec.VolumeClaimTemplates[i]
		have := s.claim(claimName(s.set, template, n))
		switch {
		case have == nil:
			if missing {
				st.claims = append(st.claims, newClaim(s.set, template, st.pod))
			}
			continue
		case missing && have.DeletionTimestamp != nil:
			st.blocked = append(st.blocked, fmt.Errorf("pvc %s is being deleted", have.Name))
		}
		refs, conflicting := wantedOwners(have, s.set, st.pod)
		changed := !hasSameOwners(refs, have.OwnerReferences)
		if changed {
			claim := have.DeepCopy()
			claim.OwnerReferences = refs
			st.refs = append(st.refs, claim)
		}
		if conflicting && (changed || st.verb == create) {
			st.conflicting = append(st.conflicting, have.Name)
		}
	}
}

// hasStaleClaim reports whether a claim of a Pod that is to be created is still owned by the previous Pod. If claims are deleted when
// the set is scaled down, this one is about to be deleted, and the Pod must wait.
func (s *state) hasStaleClaim(ordinal int) bool {
	if s.set.Spec.PersistentVolumeClaimRetentionPolicy == nil ||
		s.set.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled != appsv1.DeletePersistentVolumeClaimRetentionPolicyType {
		return false
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName(s.set, ordinal)}}
	for i := range s.set.Spec.VolumeClaimTemplates {
		have := s.claim(claimName(s.set, &s.set.Spec.VolumeClaimTemplates[i], ordinal))
		if have != nil && hasStaleRef(have, pod, podKind) {
			return true
		}
	}
	return false
}

// wantedOwners returns the owners that a claim should have:
//
//	retain when scaled, retain when deleted   neither set nor Pod
//	retain when scaled, delete when deleted   the set
//	delete when scaled, retain when deleted   the Pod, once it is condemned
//	delete when scaled, delete when deleted   the set, or the Pod once it is condemned
//
// A claim of an earlier set or Pod of the same name is not changed. conflicting is true if the claim has another controller:
// then the policy is ignored.
func wantedOwners(claim *corev1.PersistentVolumeClaim, set *appsv1.StatefulSet, pod *corev1.Pod) (refs []metav1.OwnerReference,
	conflicting bool) {
	conflicting = hasConflictingOwner(claim, set, pod)
	if hasStaleRef(claim, set, gvk) || hasStaleRef(claim, pod, podKind) {
		return claim.OwnerReferences, conflicting
	}
	refs = slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(r metav1.OwnerReference) bool {
		return refersTo(&r, set, gvk) || refersTo(&r, pod, podKind)
	})
	if conflicting {
		return refs, conflicting
	}
	scaled, deleted := policy(set)
	condemned := !isWanted(set, ordinal(set, pod))
	switch {
	case scaled && condemned:
		refs = addOwner(refs, pod, podKind)
	case deleted:
		refs = addOwner(refs, set, gvk)
	}
	return refs, conflicting
}

// policy reports whether claims are deleted when a set is scaled down, and when it is deleted.
func policy(set *appsv1.StatefulSet) (scaled, deleted bool) {
	const deleteClaims = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	p := set.Spec.PersistentVolumeClaimRetentionPolicy
	if p == nil {
		return false, false
	}
	return p.WhenScaled == deleteClaims, p.WhenDeleted == deleteClaims
}

// hasConflictingOwner reports whether a claim that the retention policy may delete has a controller other than the set or the Pod.
func hasConflictingOwner(claim *corev1.PersistentVolumeClaim, set *appsv1.StatefulSet, pod *corev1.Pod) bool {
	if scaled, deleted := policy(set); !scaled && !deleted {
		return false
	}
	for i := range claim.OwnerReferences {
		r := &claim.OwnerReferences[i]
		switch {
		case refersTo(r, set, gvk):
			if r.UID != set.UID {
				return true
			}
		case refersTo(r, pod, podKind):
			if r.UID != pod.UID {
				return true
			}
		case r.Controller != nil && *r.Controller:
			return true
		}
	}
	return false
}

// refersTo reports whether a reference has the kind and name of an object, with any UID.
func refersTo(r *metav1.OwnerReference, o kind.Object, k schema.GroupVersionKind) bool {
	return r.APIVersion == k.GroupVersion().String() && r.Kind == k.Kind && r.Name == o.GetName()
}

// hasStaleRef reports whether a claim is owned by an earlier object of the same name.
func hasStaleRef(claim *corev1.PersistentVolumeClaim, o kind.Object, k schema.GroupVersionKind) bool {
	at := slices.IndexFunc(claim.OwnerReferences, func(r metav1.OwnerReference) bool { return refersTo(&r, o, k) })
	return at >= 0 && claim.OwnerReferences[at].UID != o.GetUID()
}

func addOwner(refs []metav1.OwnerReference, o kind.Object, k schema.GroupVersionKind) []metav1.OwnerReference {
	if slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool { return r.UID == o.GetUID() }) {
		return refs
	}
	return append(refs, *metav1.NewControllerRef(o, k))
}

// hasSameOwners compares the UIDs of owners and controllers in any order.
func hasSameOwners(a, b []metav1.OwnerReference) bool {
	type owner struct {
		uid        string
		controller bool
	}
	of := func(refs []metav1.OwnerReference) map[owner]bool {
		out := map[owner]bool{}
		for _, r := range refs {
			out[owner{string(r.UID), r.Controller != nil && *r.Controller}] = true
		}
		return out
	}
	return maps.Equal(of(a), of(b))
}
