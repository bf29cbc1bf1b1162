// Package clusterrole computes the rules of ClusterRoles that aggregate others.
package clusterrole

import (
	"context"
	"iter"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/kind"
)

// Aggregate computes the rules of a role from all roles, and reports whether they differ from those it has.
type Aggregate func(role *rbacv1.ClusterRole, all iter.Seq[*rbacv1.ClusterRole]) (rules []rbacv1.PolicyRule, changed bool, err error)

// Controller returns the controller.
func Controller(aggregate Aggregate) control.Controller {
	roles := schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterroles"}
	return control.Controller{
		Name: "clusterrole-aggregation-controller", For: roles, Writes: []control.Write{{On: roles, Do: "update escalate"}},
		// Any role may be part of any aggregated one.
		Triggers: []control.Trigger{{On: roles, Keys: func(c *control.Cluster, _ kind.Object) iter.Seq[control.Key] {
			return func(yield func(control.Key) bool) {
				for o := range c.View(roles).List("") {
					if o.(*rbacv1.ClusterRole).AggregationRule != nil && !yield(control.Key{Name: o.GetName()}) {
						return
					}
				}
			}
		}}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			o, found := c.View(roles).Get("", k.Name)
			if !found || o.(*rbacv1.ClusterRole).AggregationRule == nil {
				return 0, nil
			}
			role := o.(*rbacv1.ClusterRole)
			rules, changed, err := aggregate(role, func(yield func(*rbacv1.ClusterRole) bool) {
				for r := range c.View(roles).List("") {
					if !yield(r.(*rbacv1.ClusterRole)) {
						return
					}
				}
			})
			if err != nil || !changed {
				return 0, err
			}
			next := role.DeepCopy()
			next.Rules = rules
			_, err = c.Update(ctx, roles, next, "")
			return 0, err
		},
	}
}
