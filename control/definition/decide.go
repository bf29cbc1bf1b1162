package definition

import (
	"cmp"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// decide returns the definitions of a group whose status must change, as copies with the status they should have. Older definitions
// come first. A name that one definition gives up is free for others only at the next look, when that is stored: so the changes
// that decide returns may be stored in any order, and each of them may fail.
func decide(group []*crd, now metav1.Time) (changed []*crd) {
	var open []*crd
	for _, c := range group {
		if !settled(c) {
			open = append(open, c)
		}
	}
	if len(open) == 0 {
		return nil
	}
	slices.SortFunc(open, func(a, b *crd) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	taken := namesOf(group)
	for _, c := range open {
		granted, conflict := taken.grant(&c.Spec.Names, &c.Status.AcceptedNames)
		taken.add(&granted)
		conditions := set(c.Status.Conditions, accepted(conflict), now)
		conditions = set(conditions, established(c, conflict != nil), now)
		if approval := approval(c); approval != nil {
			conditions = set(conditions, *approval, now)
		}
		if mayBeNonStructural(c) {
			conditions = withStructure(conditions, nonStructural(c), now)
		}
		if sameNames(&granted, &c.Status.AcceptedNames) && sameConditions(conditions, c.Status.Conditions) {
			continue
		}
		next := c.DeepCopy()
		next.Status.AcceptedNames, next.Status.Conditions = granted, conditions
		changed = append(changed, next)
	}
	return changed
}

// withStructure sets the condition NonStructuralSchema, or removes it.
func withStructure(list []condition, c *condition, now metav1.Time) []condition {
	if c != nil {
		return set(list, *c, now)
	}
	return slices.DeleteFunc(slices.Clone(list), func(o condition) bool { return o.Type == apiextensionsv1.NonStructuralSchema })
}

// settled says without much work that the status of a definition is as it should be; that is so of nearly all.
func settled(c *crd) bool {
	if !sameNames(&c.Spec.Names, &c.Status.AcceptedNames) || mayBeNonStructural(c) ||
		!isTrue(c, apiextensionsv1.NamesAccepted) || !isTrue(c, apiextensionsv1.Established) {
		return false
	}
	wanted := approval(c)
	return wanted == nil || sameConditions(set(c.Status.Conditions, *wanted, metav1.Time{}), c.Status.Conditions)
}
