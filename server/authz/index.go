package authz

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Rules is how RBAC reads the cluster's roles and bindings. The objects are shared and never changed here. All methods
// may be called concurrently.
type Rules interface {
	// Generation grows with every change to any of the four kinds. What the other methods return must be at least as
	// new as the generation last returned: if Generation lags behind, revocations take effect late.
	Generation() int64
	ClusterRole(name string) (*rbacv1.ClusterRole, bool)
	Role(namespace, name string) (*rbacv1.Role, bool)
	ClusterRoleBindings() iter.Seq[*rbacv1.ClusterRoleBinding]
	RoleBindings(namespace string) iter.Seq[*rbacv1.RoleBinding]
}

// index finds the bindings of a subject, for one generation of the rules. The part for the cluster and the part for
// each namespace are built when first needed, so a change costs only what is used after it.
type index struct {
	generation int64
	cluster    *shard

	mu         sync.RWMutex // mu guards namespaces.
	namespaces map[string]*shard
}

// shard maps subjects to their bindings within one scope. Service accounts are found by their user name. A scope
// without bindings is a nil shard.
type shard struct {
	users, groups map[string][]grant
}

// grant is a binding as found through one of its subjects.
type grant struct {
	*binding
	subject int
}

// binding is a ClusterRoleBinding or a RoleBinding with its role resolved.
type binding struct {
	order     int // position among the bindings of the scope, by name
	name      string
	namespace string // empty for a ClusterRoleBinding
	roleRef   rbacv1.RoleRef
	subjects  []rbacv1.Subject
	rules     []rbacv1.PolicyRule
	missing   error // set if the role does not exist; then rules is nil

	// reasons caches, for each subject, the sentence that names the binding.
	reasons []atomic.Pointer[string]
}

// current returns the index of the present generation; it makes a new one if something changed.
func (r *RBAC) current() *index {
	generation := r.rules.Generation()
	if x := r.index.Load(); x != nil && x.generation == generation {
		return x
	}
	r.building.Lock()
	defer r.building.Unlock()
	// Another goroutine may have built it meanwhile. The generation is read again before anything else, because the
	// content must never be older than its generation.
	generation = r.rules.Generation()
	if x := r.index.Load(); x != nil && x.generation == generation {
		return x
	}
	x := &index{generation: generation, namespaces: map[string]*shard{}}
	x.cluster = newShard(func(yield func(*binding) bool) {
		for b := range r.rules.ClusterRoleBindings() {
			if !yield(&binding{name: b.Name, roleRef: b.RoleRef, subjects: b.Subjects}) {
				return
			}
		}
	}, r.rules)
	r.index.Store(x)
	return x
}

// namespace returns the shard of a namespace, nil if it has no bindings.
func (x *index) namespace(namespace string, rules Rules) *shard {
	x.mu.RLock()
	s := x.namespaces[namespace]
	x.mu.RUnlock()
	if s != nil {
		return s
	}
	s = newShard(func(yield func(*binding) bool) {
		for b := range rules.RoleBindings(namespace) {
			if !yield(&binding{name: b.Name, namespace: namespace, roleRef: b.RoleRef, subjects: b.Subjects}) {
				return
			}
		}
	}, rules)
	if s == nil {
		// Anybody can ask about namespaces that do not exist. Caching those would let them fill the memory.
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.namespaces[namespace] = s
	return s
}

func newShard(bindings iter.Seq[*binding], rules Rules) *shard {
	sorted := slices.SortedFunc(bindings, func(a, b *binding) int { return cmp.Compare(a.name, b.name) })
	if len(sorted) == 0 {
		return nil
	}
	s := &shard{users: map[string][]grant{}, groups: map[string][]grant{}}
	for order, b := range sorted {
		b.order = order
		b.rules, b.missing = resolve(rules, b.roleRef, b.namespace, singular)
		b.reasons = make([]atomic.Pointer[string], len(b.subjects))
		for i := range b.subjects {
			switch b.subjects[i].Kind {
			case rbacv1.UserKind:
				add(s.users, b.subjects[i].Name, grant{b, i})
			case rbacv1.GroupKind:
				add(s.groups, b.subjects[i].Name, grant{b, i})
			case rbacv1.ServiceAccountKind:
				if name := accountUser(&b.subjects[i], b.namespace); name != "" {
					add(s.users, name, grant{b, i})
				}
			}
		}
	}
	return s
}

// add adds a grant; a subject that a binding lists twice counts once.
func add(m map[string][]grant, key string, g grant) {
	list := m[key]
	if n := len(list); n > 0 && list[n-1].binding == g.binding {
		return
	}
	m[key] = append(list, g)
}

// accountUser returns the user name of a service account. A subject of a RoleBinding may leave out the namespace.
func accountUser(s *rbacv1.Subject, bindingNamespace string) string {
	namespace := cmp.Or(s.Namespace, bindingNamespace)
	if namespace == "" {
		return ""
	}
	return "system:serviceaccount:" + namespace + ":" + s.Name
}

// find returns the first grant of the user in the shard that allows the request.
func (s *shard) find(a *Attributes, name string, groups []string) (grant, bool) {
	if s == nil {
		return grant{}, false
	}
	if g, ok := firstAllowing(s.users[name], a); ok {
		return g, true
	}
	for _, group := range groups {
		if g, ok := firstAllowing(s.groups[group], a); ok {
			return g, true
		}
	}
	return grant{}, false
}

func firstAllowing(grants []grant, a *Attributes) (grant, bool) {
	for _, g := range grants {
		if RulesAllow(a, g.rules) {
			return g, true
		}
	}
	return grant{}, false
}

// bindingsOf returns the bindings of u, each once, in the order of their names.
func (s *shard) bindingsOf(u user.Info) []*binding {
	if s == nil {
		return nil
	}
	var all []*binding
	collect := func(grants []grant) {
		for _, g := range grants {
			all = append(all, g.binding)
		}
	}
	collect(s.users[u.GetName()])
	for _, group := range u.GetGroups() {
		collect(s.groups[group])
	}
	slices.SortFunc(all, func(a, b *binding) int { return cmp.Compare(a.order, b.order) })
	return slices.Compact(all)
}

// reason returns the sentence that explains why u was allowed. It names the first subject that applies to u, which need
// not be the one by which the binding was found.
func (g grant) reason(u user.Info) string {
	subject := g.subject
	for i := range g.subject {
		if applies(u, &g.subjects[i], g.namespace) {
			subject = i
			break
		}
	}
	if known := g.reasons[subject].Load(); known != nil {
		return *known
	}
	text := "RBAC: allowed by " + g.describe(&g.subjects[subject])
	g.reasons[subject].Store(&text)
	return text
}

func (b *binding) describe(s *rbacv1.Subject) string {
	kind, name := "ClusterRoleBinding", b.name
	if b.namespace != "" {
		kind, name = "RoleBinding", b.name+"/"+b.namespace
	}
	subject := s.Name
	if s.Kind == rbacv1.ServiceAccountKind {
		subject += "/" + cmp.Or(s.Namespace, b.namespace)
	}
	return fmt.Sprintf("%s %q of %s %q to %s %q", kind, name, b.roleRef.Kind, b.roleRef.Name, s.Kind, subject)
}

func applies(u user.Info, s *rbacv1.Subject, bindingNamespace string) bool {
	switch s.Kind {
	case rbacv1.UserKind:
		return u.GetName() == s.Name
	case rbacv1.GroupKind:
		return contains(u.GetGroups(), s.Name)
	case rbacv1.ServiceAccountKind:
		name := accountUser(s, bindingNamespace)
		return name != "" && u.GetName() == name
	}
	return false
}

// The ending of the kind of a missing role. Kubernetes says "clusterrole" when a request is authorized and
// "clusterroles" when a binding is written, and clients see both texts.
const (
	singular = ""
	plural   = "s"
)

// resolve returns the rules of the role that a binding in the namespace refers to.
func resolve(rules Rules, ref rbacv1.RoleRef, namespace, plural string) ([]rbacv1.PolicyRule, error) {
	switch ref.Kind {
	case "ClusterRole":
		if role, ok := rules.ClusterRole(ref.Name); ok {
			return role.Rules, nil
		}
		return nil, apierrors.NewNotFound(rbacv1.Resource("clusterrole"+plural), ref.Name)
	case "Role":
		if role, ok := rules.Role(namespace, ref.Name); ok {
			return role.Rules, nil
		}
		return nil, apierrors.NewNotFound(rbacv1.Resource("role"+plural), ref.Name)
	default:
		return nil, fmt.Errorf("unsupported role reference kind: %q", ref.Kind)
	}
}
