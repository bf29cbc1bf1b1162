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

// newClaim makes the claim of a template for one Pod. It has the owner that the retention policy asks for from the
// beginning, so that nothing is left behind if the set goes before the Pod has come.
func newClaim(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, pod *corev1.Pod) *corev1.PersistentVolumeClaim {
	n := ordinal(set, pod)
	claim := template.DeepCopy()
	claim.Name = claimName(set, template, n)
	claim.Namespace = set.Namespace
	if claim.Labels == nil {
		claim.Labels = map[string]string{}
	}
	maps.Copy(claim.Labels, set.Spec.Selector.MatchLabels)
	claim.OwnerReferences, _ = owners(claim, set, pod)
	return claim
}

// claims fills in what a step must do about the claims of its Pod: make those that are missing, if asked to, and give
// those that are there the owners that the retention policy asks for.
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
		refs, strange := owners(have, s.set, st.pod)
		changed := !sameOwners(refs, have.OwnerReferences)
		if changed {
			claim := have.DeepCopy()
			claim.OwnerReferences = refs
			st.refs = append(st.refs, claim)
		}
		if strange && (changed || st.verb == create) {
			st.strange = append(st.strange, have.Name)
		}
	}
}

// stale says that a claim of a Pod that is to come still belongs to its predecessor. If claims go when a set is scaled
// down, this one is about to go: a Pod that used it would lose it.
func (s *state) stale(ordinal int) bool {
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

// owners are the owners that a claim should have:
//
//	retain when scaled, retain when deleted   neither set nor Pod
//	retain when scaled, delete when deleted   the set
//	delete when scaled, retain when deleted   the Pod, once it is not wanted any more
//	delete when scaled, delete when deleted   the set, and the Pod in its place once that is not wanted any more
//
// A claim of an earlier set or Pod of the same name is left as it is. strange says that another controller has it: then
// the policy is not followed.
func owners(claim *corev1.PersistentVolumeClaim, set *appsv1.StatefulSet, pod *corev1.Pod) (refs []metav1.OwnerReference, strange bool) {
	strange = strangelyOwned(claim, set, pod)
	if hasStaleRef(claim, set, gvk) || hasStaleRef(claim, pod, podKind) {
		return claim.OwnerReferences, strange
	}
	refs = slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(r metav1.OwnerReference) bool {
		return refers(&r, set, gvk) || refers(&r, pod, podKind)
	})
	if strange {
		return refs, strange
	}
	scaled, deleted := policy(set)
	unwanted := !wanted(set, ordinal(set, pod))
	switch {
	case scaled && unwanted:
		refs = addOwner(refs, pod, podKind)
	case deleted:
		refs = addOwner(refs, set, gvk)
	}
	return refs, strange
}

// policy says whether claims are deleted when a set is scaled down, and when it is deleted.
func policy(set *appsv1.StatefulSet) (scaled, deleted bool) {
	const gone = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	p := set.Spec.PersistentVolumeClaimRetentionPolicy
	if p == nil {
		return false, false
	}
	return p.WhenScaled == gone, p.WhenDeleted == gone
}

// strangelyOwned says that a claim which the set may have to delete has a controller that is neither the set nor the Pod.
func strangelyOwned(claim *corev1.PersistentVolumeClaim, set *appsv1.StatefulSet, pod *corev1.Pod) bool {
	if scaled, deleted := policy(set); !scaled && !deleted {
		return false
	}
	for i := range claim.OwnerReferences {
		r := &claim.OwnerReferences[i]
		switch {
		case refers(r, set, gvk):
			if r.UID != set.UID {
				return true
			}
		case refers(r, pod, podKind):
			if r.UID != pod.UID {
				return true
			}
		case r.Controller != nil && *r.Controller:
			return true
		}
	}
	return false
}

// refers says that a reference names an object, whatever its UID.
func refers(r *metav1.OwnerReference, o kind.Object, k schema.GroupVersionKind) bool {
	return r.APIVersion == k.GroupVersion().String() && r.Kind == k.Kind && r.Name == o.GetName()
}

// hasStaleRef says that a claim belongs to an earlier object of the same name.
func hasStaleRef(claim *corev1.PersistentVolumeClaim, o kind.Object, k schema.GroupVersionKind) bool {
	at := slices.IndexFunc(claim.OwnerReferences, func(r metav1.OwnerReference) bool { return refers(&r, o, k) })
	return at >= 0 && claim.OwnerReferences[at].UID != o.GetUID()
}

func addOwner(refs []metav1.OwnerReference, o kind.Object, k schema.GroupVersionKind) []metav1.OwnerReference {
	if slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool { return r.UID == o.GetUID() }) {
		return refs
	}
	return append(refs, *metav1.NewControllerRef(o, k))
}

// sameOwners compares by who owns and who controls; the order does not matter.
func sameOwners(a, b []metav1.OwnerReference) bool {
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
