package authz

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// Guard prevents privilege escalation: users cannot grant what they do not hold. Being allowed to write roles or
// bindings is not enough. The writer must hold every permission that the write would grant, or hold the verb "escalate"
// on the role or "bind" on the role that is bound. Members of system:masters are exempt.
type Guard struct {
	// RBAC knows what the writer holds.
	RBAC *RBAC
	// Authorizer is asked about "escalate" and "bind"; normally it is the whole chain.
	Authorizer Authorizer
}

// Grant is a write of a role or a binding that is being admitted.
type Grant struct {
	User user.Info
	// Namespace is the namespace of the request, empty for cluster-wide kinds.
	Namespace string
	// Name is the object's name in the URL of the request, so it is empty for a create.
	Name string
}

// ClusterRole checks the write of a ClusterRole; old is nil when it is created.
func (g *Guard) ClusterRole(ctx context.Context, w Grant, role, old *rbacv1.ClusterRole) error {
	w.Namespace = ""
	if IsMaster(w.User) || g.mayEscalate(ctx, w, "clusterroles") {
		return nil
	}
	if old != nil && changesOnlyOwnership(role.DeepCopy(), old) {
		return nil
	}
	resource := rbacv1.Resource("clusterroles")
	if err := g.checkHeld(w.User, "", role.Rules); err != nil {
		return apierrors.NewForbidden(resource, role.Name, err)
	}
	// An aggregated role may gather any rule later on, and removing the aggregationRule may keep it from losing rules
	// later.
	if aggregates(role) || aggregates(old) {
		everything := []rbacv1.PolicyRule{
			{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
			{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
		}
		if err := g.checkHeld(w.User, "", everything); err != nil {
			return apierrors.NewForbidden(resource, role.Name, errors.New("must have cluster-admin privileges to use the aggregationRule"))
		}
	}
	return nil
}

// Role checks the write of a Role; old is nil when it is created.
func (g *Guard) Role(ctx context.Context, w Grant, role, old *rbacv1.Role) error {
	if IsMaster(w.User) || g.mayEscalate(ctx, w, "roles") {
		return nil
	}
	if old != nil && changesOnlyOwnership(role.DeepCopy(), old) {
		return nil
	}
	if err := g.checkHeld(w.User, w.Namespace, role.Rules); err != nil {
		return apierrors.NewForbidden(rbacv1.Resource("roles"), role.Name, err)
	}
	return nil
}

// ClusterRoleBinding checks the write of a ClusterRoleBinding; old is nil when it is created.
func (g *Guard) ClusterRoleBinding(ctx context.Context, w Grant, b, old *rbacv1.ClusterRoleBinding) error {
	if IsMaster(w.User) || old != nil && changesOnlyOwnership(b.DeepCopy(), old) {
		return nil
	}
	w.Namespace = ""
	return g.bind(ctx, w, "clusterrolebindings", b.Name, b.RoleRef)
}

// RoleBinding checks the write of a RoleBinding; old is nil when it is created. The namespace of the request counts,
// because that of the object may not be set yet.
func (g *Guard) RoleBinding(ctx context.Context, w Grant, b, old *rbacv1.RoleBinding) error {
	if IsMaster(w.User) {
		return nil
	}
	if w.Namespace == "" {
		return apierrors.NewBadRequest("namespace is required")
	}
	if old != nil && changesOnlyOwnership(b.DeepCopy(), old) {
		return nil
	}
	return g.bind(ctx, w, "rolebindings", b.Name, b.RoleRef)
}

func (g *Guard) bind(ctx context.Context, w Grant, resource, name string, ref rbacv1.RoleRef) error {
	if g.mayBind(ctx, w, ref) {
		return nil
	}
	rules, err := resolve(g.RBAC.rules, ref, w.Namespace, plural)
	if err != nil {
		return err
	}
	if err := g.checkHeld(w.User, w.Namespace, rules); err != nil {
		return apierrors.NewForbidden(rbacv1.Resource(resource), name, err)
	}
	return nil
}

func (g *Guard) mayEscalate(ctx context.Context, w Grant, resource string) bool {
	return g.isAllowed(ctx, Attributes{
		User: w.User, Verb: "escalate", Namespace: w.Namespace,
		Group: rbacv1.GroupName, Version: "*", Resource: resource, Name: w.Name, IsResource: true,
	})
}

// mayBind asks in the namespace of the binding, so that binding a ClusterRole can be delegated for one namespace
// without delegating it for the cluster.
func (g *Guard) mayBind(ctx context.Context, w Grant, ref rbacv1.RoleRef) bool {
	a := Attributes{
		User: w.User, Verb: "bind", Namespace: w.Namespace,
		Group: ref.APIGroup, Version: "*", Name: ref.Name, IsResource: true,
	}
	switch ref.Kind {
	case "ClusterRole":
		a.Resource = "clusterroles"
	case "Role":
		a.Resource = "roles"
	default:
		return false
	}
	return g.isAllowed(ctx, a)
}

// isAllowed asks for a permission that exempts the writer from the check; an error counts as no.
func (g *Guard) isAllowed(ctx context.Context, a Attributes) bool {
	decision, _, _ := g.Authorizer.Authorize(ctx, a)
	return decision == Allow
}

// checkHeld returns an error that lists the rules which u does not hold in the namespace.
func (g *Guard) checkHeld(u user.Info, namespace string, rules []rbacv1.PolicyRule) error {
	if u == nil {
		return errNoUser
	}
	held, unresolved := g.heldBy(u, namespace)
	ok, missing := validation.Covers(held, rules)
	if ok {
		return nil
	}
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		u.GetName(), u.GetGroups(), strings.Join(describeRules(missing), "\n"))
	if unresolved != nil {
		text += fmt.Sprintf("; resolution errors: %v", []error{unresolved})
	}
	return errors.New(text)
}

// heldBy is RBAC.RulesFor, except that errors name missing roles as a write does.
func (g *Guard) heldBy(u user.Info, namespace string) ([]rbacv1.PolicyRule, error) {
	x := g.RBAC.current()
	scopes := []*shard{x.cluster}
	if namespace != "" {
		scopes = append(scopes, x.namespace(namespace, g.RBAC.rules))
	}
	var held []rbacv1.PolicyRule
	var errs []error
	for _, s := range scopes {
		for _, b := range s.bindingsOf(u) {
			rules, err := resolve(g.RBAC.rules, b.roleRef, b.namespace, plural)
			held = append(held, rules...)
			if err != nil {
				errs = append(errs, err)
			}
		}
	}
	return held, aggregate(errs)
}

// describeRules returns broken-down rules as text, with the verbs of one resource together.
func describeRules(rules []rbacv1.PolicyRule) []string {
	type target struct {
		group, resource, name string
		named                 bool
	}
	merged := map[target]int{}
	var compact []rbacv1.PolicyRule
	for i := range rules {
		rule := &rules[i]
		if len(rule.APIGroups) != 1 || len(rule.Resources) != 1 || len(rule.ResourceNames) > 1 || len(rule.NonResourceURLs) > 0 {
			compact = append(compact, *rule)
			continue
		}
		t := target{group: rule.APIGroups[0], resource: rule.Resources[0]}
		if len(rule.ResourceNames) == 1 {
			t.name, t.named = rule.ResourceNames[0], true
		}
		if at, ok := merged[t]; ok {
			compact[at].Verbs = append(compact[at].Verbs, rule.Verbs...)
			continue
		}
		merged[t] = len(compact)
		compact = append(compact, *rule.DeepCopy())
	}
	lines := make([]string, 0, len(compact))
	for i := range compact {
		lines = append(lines, describeRule(&compact[i]))
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

func describeRule(r *rbacv1.PolicyRule) string {
	var parts []string
	part := func(name string, values []string) {
		if len(values) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", name, values))
		}
	}
	part("APIGroups", r.APIGroups)
	part("Resources", r.Resources)
	part("NonResourceURLs", r.NonResourceURLs)
	part("ResourceNames", r.ResourceNames)
	part("Verbs", r.Verbs)
	return "{" + strings.Join(parts, ", ") + "}"
}

func aggregates(role *rbacv1.ClusterRole) bool {
	return role != nil && role.AggregationRule != nil && len(role.AggregationRule.ClusterRoleSelectors) > 0
}

// changesOnlyOwnership reports whether an update changes nothing but owner references, finalizers and managed fields.
// That lets the garbage collector update roles that it could not grant. scratch is a copy of the new object and is
// overwritten.
func changesOnlyOwnership(scratch, old metav1.Object) bool {
	scratch.SetOwnerReferences(old.GetOwnerReferences())
	scratch.SetFinalizers(old.GetFinalizers())
	scratch.SetSelfLink(old.GetSelfLink())
	scratch.SetManagedFields(old.GetManagedFields())
	return equality.Semantic.DeepEqual(scratch, old)
}
