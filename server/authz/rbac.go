package authz

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// RBAC is the authorizer that answers from roles and bindings. A question costs what the bindings of the
// asking user and its groups cost, not what all bindings cost.
type RBAC struct {
	rules Rules
	index atomic.Pointer[index]
	// building lets one goroutine rebuild the index while the others wait for its work instead of repeating it.
	building sync.Mutex
}

// NewRBAC returns the authorizer over the rules.
func NewRBAC(rules Rules) *RBAC { return &RBAC{rules: rules} }

// Authorize says Allow or NoOpinion, never Deny: RBAC only grants. A binding whose role is missing does not
// hide other bindings; it is mentioned when nothing else allows.
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
		local = x.in(a.Namespace, r.rules)
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

// RulesFor returns all rules that u holds in the namespace, cluster-wide ones first; without a namespace only
// those. The error names roles that are missing; the rules are good nevertheless. The slices inside belong to
// the roles and must not be changed.
func (r *RBAC) RulesFor(u user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	x := r.current()
	if namespace == "" {
		return gather(u, x.cluster, nil)
	}
	return gather(u, x.cluster, x.in(namespace, r.rules))
}

// gather collects the rules of u from both scopes; local may be nil.
func gather(u user.Info, cluster, local *shard) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	var errs []error
	for _, s := range []*shard{cluster, local} {
		for _, b := range s.of(u) {
			rules = append(rules, b.rules...)
			if b.missing != nil {
				errs = append(errs, b.missing)
			}
		}
	}
	return rules, aggregate(errs)
}
