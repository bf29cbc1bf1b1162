package validate

import (
	"context"
	"fmt"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// oneDefaultPriority rejects a second default priority class.
func oneDefaultPriority(ctx context.Context, a *kind.Admission) error {
	class, ok := a.Object.(*schedulingv1.PriorityClass)
	if !ok || !class.GlobalDefault || !a.IsCreate() && !a.IsUpdate() {
		return nil
	}
	classes, err := a.Server.List(ctx, schema.GroupResource{Group: schedulingv1.GroupName, Resource: "priorityclasses"}, "")
	if err != nil {
		return fmt.Errorf("failed to get default priority class: %w", err)
	}
	var now *schedulingv1.PriorityClass
	for o := range classes {
		if c, ok := o.(*schedulingv1.PriorityClass); ok && c.GlobalDefault && (now == nil || c.Value < now.Value) {
			now = c
		}
	}
	if now == nil || a.IsUpdate() && now.Name == class.Name {
		return nil
	}
	return a.Forbidf("PriorityClass %v is already marked as default. Only one default can exist", now.Name)
}
