package mutate

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// priority resolves the name of a priority class to the number that the scheduler works with.
func priority(ctx context.Context, a *kind.Admission) error {
	pod, ok := a.Object.(*corev1.Pod)
	switch {
	case !ok:
		return nil
	case a.IsUpdate():
		keepPriority(pod, a.Old.(*corev1.Pod))
		return nil
	case !a.IsCreate():
		return nil
	}
	class, err := classOf(ctx, a, pod.Spec.PriorityClassName)
	if err != nil {
		return err
	}
	if err := setPriority(pod, class); err != nil {
		return a.Forbid(err)
	}
	return nil
}

// keepPriority lets a client that does not know the numbers leave them out of an update.
func keepPriority(pod, old *corev1.Pod) {
	if pod.Spec.Priority == nil {
		pod.Spec.Priority = old.Spec.Priority
	}
	if pod.Spec.PreemptionPolicy == nil {
		pod.Spec.PreemptionPolicy = old.Spec.PreemptionPolicy
	}
}

// classOf returns the class of that name, or the default one for an empty name.
func classOf(ctx context.Context, a *kind.Admission, name string) (*schedulingv1.PriorityClass, error) {
	if name == "" {
		classes, err := list[*schedulingv1.PriorityClass](ctx, a, schedulingv1.GroupName, "priorityclasses", "")
		if err != nil {
			return nil, fmt.Errorf("error occurred while retrieving default priority class: %w", err)
		}
		return defaultPriority(classes), nil
	}
	o, err := a.Server.Get(ctx, schema.GroupResource{Group: schedulingv1.GroupName, Resource: "priorityclasses"}, "", name)
	if apierrors.IsNotFound(err) {
		return nil, a.Forbidf("no PriorityClass with name %v was found", name)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to resolve PriorityClass with name %s: %w", name, err)
	}
	class, ok := o.(*schedulingv1.PriorityClass)
	if !ok {
		return nil, fmt.Errorf("unexpected type %T", o)
	}
	return class, nil
}

// defaultPriority returns the class of the pods that name none: the lowest of those marked as default. Without one,
// pods have priority 0 and preempt.
func defaultPriority(classes []*schedulingv1.PriorityClass) *schedulingv1.PriorityClass {
	var lowest *schedulingv1.PriorityClass
	for _, c := range classes {
		if c.GlobalDefault && (lowest == nil || c.Value < lowest.Value) {
			lowest = c
		}
	}
	if lowest == nil {
		return &schedulingv1.PriorityClass{PreemptionPolicy: new(corev1.PreemptLowerPriority)}
	}
	return lowest
}

// setPriority sets the values of the class, and rejects a pod with other values.
func setPriority(pod *corev1.Pod, class *schedulingv1.PriorityClass) error {
	s := &pod.Spec
	s.PriorityClassName = class.Name
	if s.Priority != nil && *s.Priority != class.Value {
		return fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *s.Priority, class.Value)
	}
	s.Priority = new(class.Value)
	if class.PreemptionPolicy == nil {
		return nil
	}
	if s.PreemptionPolicy != nil && *s.PreemptionPolicy != *class.PreemptionPolicy {
		return fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *s.PreemptionPolicy, *class.PreemptionPolicy)
	}
	s.PreemptionPolicy = new(*class.PreemptionPolicy)
	return nil
}
