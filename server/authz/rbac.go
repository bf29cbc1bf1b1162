package authz

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// RBAC is the authorizer that decides by roles and bindings. The cost of a decision depends on the bindings of the user
// and its groups, not on the number of all bindings.
type RBAC struct {
	rules Rules
	index atomic.Pointer[index]
	// building lets one goroutine rebuild the index while the others wait for it instead of repeating the work.
	building sync.Mutex
}

// NewRBAC returns the authorizer over the rules.
func NewRBAC(rules Rules) *RBAC { return &RBAC{rules: rules} }

// Authorize returns Allow or NoOpinion, never Deny: RBAC only grants. A binding whose role is missing does not hide
// other bindings; it is mentioned when nothing else allows the request.
func (r *RBAC) Authorize(_ context.Context, a Attributes) (Decision, string, error) {
	if a.User == nil {
		return NoOpinion, "", errNoUser
	}
	x := r.current()
	name, groups := a.User.GetName(), a.User.GetGroups()
	if g, ok := x.cluster.find(&a, name, groups); ok {
		return Allow, g.reason(a.User), nil
	}
	var local *shard
	if a.Namespace != "" {
		local = x.namespace(a.Namespace, r.rules)
		if g, ok := local.find(&a, name, groups); ok {
			return Allow, g.reason(a.User), nil
		}
	}
	_, err := gather(a.User, x.cluster, local)
	if err != nil {
		return NoOpinion, fmt.Sprintf("RBAC: %v", err), nil
	}
	return NoOpinion, "", nil
}

// RulesFor returns all rules that u holds in the namespace, cluster-wide ones first; without a namespace only those.
// The error names roles that are missing; the rules are valid nevertheless. The slices inside belong to the roles and
// must not be changed.
func (r *RBAC) RulesFor(u user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	x := r.current()
	if namespace == "" {
		return gather(u, x.cluster, nil)
	}
	return gather(u, x.cluster, x.namespace(namespace, r.rules))
}

// gather collects the rules of u from both scopes; local may be nil.
func gather(u user.Info, cluster, local *shard) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	var errs []error
	for _, s := range []*shard{cluster, local} {
		for _, b := range s.bindingsOf(u) {
			rules = append(rules, b.rules...)
			if b.missing != nil {
				errs = append(errs, b.missing)
			}
		}
	}
	return rules, aggregate(errs)
}
