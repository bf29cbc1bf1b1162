// Package availablecondition writes conditions about the API server's own configuration: Available of APIServices, both those
// that this server serves itself and those of aggregated servers, and Dangling of FlowSchemas.
package availablecondition

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// APIServices returns the controller that sets the condition Available of local APIServices. Those of other servers are left
// to Aggregated.
func APIServices() control.Controller {
	return control.Controller{
		Name: "local-availability-controller", For: gr.APIServices, Writes: []control.Write{{On: gr.APIServices, Do: "update/status"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			have, found := control.Get[*apiregistrationv1.APIService](c, gr.APIServices, "", k.Name)
			if !found {
				return 0, nil
			}
			conditions, changed := localConditions(have, time.Now())
			if !changed {
				return 0, nil
			}
			next := have.DeepCopy()
			next.Status.Conditions = conditions
			_, err := c.Update(ctx, gr.APIServices, next, "status")
			return 0, control.IgnoreNotFound(err)
		},
	}
}

// localConditions returns the conditions of an APIService that this server serves. A condition that keeps its status keeps its
// transition time.
func localConditions(s *apiregistrationv1.APIService, now time.Time) (conditions []apiregistrationv1.APIServiceCondition, changed bool) {
	if s.Spec.Service != nil {
		return nil, false
	}
	want := apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, Reason: "Local",
		Message: "Local APIServices are always available",
	}
	return withCondition(s.Status.Conditions, want, now)
}

// FlowSchemas returns the controller that sets the condition Dangling of flow schemas whose priority level does not exist.
func FlowSchemas() control.Controller {
	byLevel := client.Index{Name: "priority level", Values: func(o kind.Object) []string {
		if s, ok := o.(*flowcontrolv1.FlowSchema); ok {
			return []string{s.Spec.PriorityLevelConfiguration.Name}
		}
		return nil
	}}
	return control.Controller{
		Name: "flow-schema-controller", For: gr.FlowSchemas, Writes: []control.Write{{On: gr.FlowSchemas, Do: "update/status"}},
		Triggers: []control.Trigger{{
			On:   gr.PriorityLevelConfigurations,
			When: func(old, now kind.Object) bool { return old == nil || now == nil }, // created or deleted
			Keys: func(c *control.Cluster, level kind.Object) iter.Seq[control.Key] {
				return func(yield func(control.Key) bool) {
					for o := range c.View(gr.FlowSchemas).By(byLevel, level.GetName()) {
						if !yield(control.KeyOf(o)) {
							return
						}
					}
				}
			},
		}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			have, found := control.Get[*flowcontrolv1.FlowSchema](c, gr.FlowSchemas, "", k.Name)
			if !found {
				return 0, nil
			}
			_, exists := c.View(gr.PriorityLevelConfigurations).Get("", have.Spec.PriorityLevelConfiguration.Name)
			conditions, changed := danglingConditions(have, exists, time.Now())
			if !changed {
				return 0, nil
			}
			next := have.DeepCopy()
			next.Status.Conditions = conditions
			_, err := c.Update(ctx, gr.FlowSchemas, next, "status")
			return 0, control.IgnoreNotFound(err)
		},
	}
}

// danglingConditions returns the conditions of a flow schema whose priority level exists or not. The transition time changes with the
// status, the reason or the message.
func danglingConditions(s *flowcontrolv1.FlowSchema, exists bool, now time.Time) (conditions []flowcontrolv1.FlowSchemaCondition,
	changed bool) {
	name := s.Spec.PriorityLevelConfiguration.Name
	want := flowcontrolv1.FlowSchemaCondition{
		Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionFalse, LastTransitionTime: metav1.NewTime(now),
		Reason: "Found", Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", name),
	}
	if !exists {
		want.Status, want.Reason = flowcontrolv1.ConditionTrue, "NotFound"
		want.Message = fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q but there is no such object", name)
	}
	at := slices.IndexFunc(s.Status.Conditions, func(c flowcontrolv1.FlowSchemaCondition) bool { return c.Type == want.Type })
	conditions = slices.Clone(s.Status.Conditions)
	if at < 0 {
		return append(conditions, want), true
	}
	have := conditions[at]
	conditions[at] = want
	return conditions, have.Status != want.Status || have.Reason != want.Reason || have.Message != want.Message
}
