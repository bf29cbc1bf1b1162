package preemption

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"proa.dev/schedule/framework"
)

// splitByBudget splits victims, the most important first, into those whose eviction violates a PodDisruptionBudget, and
// the others. Each victim takes one disruption from the budgets that select it.
func splitByBudget(victims []*framework.PodInfo, budgets []*policyv1.PodDisruptionBudget) (violating, others []*framework.PodInfo) {
	selectors := make([]labels.Selector, len(budgets))
	left := make([]int32, len(budgets))
	for i, b := range budgets {
		left[i] = b.Status.DisruptionsAllowed
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || selector.Empty() { // such a budget selects no Pods
			selector = labels.Nothing()
		}
		selectors[i] = selector
	}
	breaks := func(v *framework.PodInfo) bool {
		if len(v.Pod.Labels) == 0 {
			return false
		}
		for i, b := range budgets {
			if b.Namespace != v.Pod.Namespace || !selectors[i].Matches(labels.Set(v.Pod.Labels)) {
				continue
			}
			if _, counted := b.Status.DisruptedPods[v.Pod.Name]; counted {
				continue
			}
			if left[i]--; left[i] < 0 {
				return true
			}
		}
		return false
	}
	for _, v := range victims {
		if breaks(v) {
			violating = append(violating, v)
		} else {
			others = append(others, v)
		}
	}
	return violating, others
}
