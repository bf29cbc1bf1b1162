package customresourcedefinition

import (
	"cmp"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// decide returns copies of the definitions of a group whose status must change, with the status they should have. Older
// definitions come first. A name that a definition gives up is free for others only at the next reconcile, when the change is
// stored: so the changes that decide returns may be stored in any order, and each of the writes may fail.
func decide(group []*crd, now metav1.Time) (changed []*crd) {
	var open []*crd
	for _, c := range group {
		if !isSettled(c) {
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
		conditions := setCondition(c.Status.Conditions, namesAccepted(conflict), now)
		conditions = setCondition(conditions, established(c, conflict != nil), now)
		if approval := approval(c); approval != nil {
			conditions = setCondition(conditions, *approval, now)
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
		return setCondition(list, *c, now)
	}
	return slices.DeleteFunc(slices.Clone(list), func(o condition) bool { return o.Type == apiextensionsv1.NonStructuralSchema })
}

// isSettled reports whether the status of a definition needs no change. It is a quick check that holds for nearly all of them.
func isSettled(c *crd) bool {
	if !sameNames(&c.Spec.Names, &c.Status.AcceptedNames) || mayBeNonStructural(c) ||
		!isTrue(c, apiextensionsv1.NamesAccepted) || !isTrue(c, apiextensionsv1.Established) {
		return false
	}
	wanted := approval(c)
	return wanted == nil || sameConditions(setCondition(c.Status.Conditions, *wanted, metav1.Time{}), c.Status.Conditions)
}
