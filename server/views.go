package server

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/watch"
)

// peek reads an object from the cache as it is, without waiting for the newest state. Decisions of hops 2 and 3 are made on
// every request; a revocation takes effect when its event has arrived, which is at once.
func (s *State) peek(gr schema.GroupResource, namespace, name string) (kind.Object, bool) {
	def := s.Def(gr)
	e, found := s.Cache(def).Get(def.Key(namespace, name))
	if !found {
		return nil, false
	}
	return e.Object(), true
}

// seq yields the cached objects of a namespace, or all.
func seq[P kind.Object](s *State, gr schema.GroupResource, namespace string) iter.Seq[P] {
	def := s.Def(gr)
	entries, _ := s.Cache(def).List(scope(def, namespace), nil)
	return func(yield func(P) bool) {
		for _, e := range entries {
			if o, ok := e.Object().(P); ok && !yield(o) {
				return
			}
		}
	}
}

func rbacResource(name string) schema.GroupResource {
	return schema.GroupResource{Group: rbacv1.GroupName, Resource: name}
}

// RBACView is the state as RBAC reads it.
type RBACView struct {
	state  *State
	caches func() [4]*watch.Cache
}

// NewRBACView makes the view; the caches start on first use.
func NewRBACView(s *State) *RBACView {
	return &RBACView{state: s, caches: sync.OnceValue(func() (out [4]*watch.Cache) {
		for i, name := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
			out[i] = s.Cache(s.Def(rbacResource(name)))
		}
		return out
	})}
}

// Wait returns when the rules are loaded.
func (v *RBACView) Wait(ctx context.Context) error {
	for _, c := range v.caches() {
		if err := c.Fresh(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Generation changes with every change of a rule or binding.
func (v *RBACView) Generation() int64 {
	var sum int64
	for _, c := range v.caches() {
		sum += c.Rev()
	}
	return sum
}

// ClusterRole finds a role of the cluster.
func (v *RBACView) ClusterRole(name string) (*rbacv1.ClusterRole, bool) {
	o, found := v.state.peek(rbacResource("clusterroles"), "", name)
	if !found {
		return nil, false
	}
	return o.(*rbacv1.ClusterRole), true
}

// Role finds a role of a namespace.
func (v *RBACView) Role(namespace, name string) (*rbacv1.Role, bool) {
	o, found := v.state.peek(rbacResource("roles"), namespace, name)
	if !found {
		return nil, false
	}
	return o.(*rbacv1.Role), true
}

// ClusterRoleBindings yields them all.
func (v *RBACView) ClusterRoleBindings() iter.Seq[*rbacv1.ClusterRoleBinding] {
	return seq[*rbacv1.ClusterRoleBinding](v.state, rbacResource("clusterrolebindings"), "")
}

// ClusterRoles yields them all.
func (v *RBACView) ClusterRoles() iter.Seq[*rbacv1.ClusterRole] {
	return seq[*rbacv1.ClusterRole](v.state, rbacResource("clusterroles"), "")
}

// RoleBindings yields those of a namespace.
func (v *RBACView) RoleBindings(namespace string) iter.Seq[*rbacv1.RoleBinding] {
	return seq[*rbacv1.RoleBinding](v.state, rbacResource("rolebindings"), namespace)
}

// RoleBinding finds one.
func (v *RBACView) RoleBinding(namespace, name string) (*rbacv1.RoleBinding, bool) {
	o, found := v.state.peek(rbacResource("rolebindings"), namespace, name)
	if !found {
		return nil, false
	}
	return o.(*rbacv1.RoleBinding), true
}

// ClusterRoleBinding finds one.
func (v *RBACView) ClusterRoleBinding(name string) (*rbacv1.ClusterRoleBinding, bool) {
	o, found := v.state.peek(rbacResource("clusterrolebindings"), "", name)
	if !found {
		return nil, false
	}
	return o.(*rbacv1.ClusterRoleBinding), true
}

// NodeView is the state as the node authorizer reads it.
type NodeView struct{ State *State }

// Pods yields the pods of a node.
func (v NodeView) Pods(node string) iter.Seq[*corev1.Pod] {
	by := client.ByNode()
	entries := v.State.Cache(v.State.Def(gr.Pods)).By(by.Name, by.Of, node)
	return func(yield func(*corev1.Pod) bool) {
		for _, e := range entries {
			if p, ok := e.Object().(*corev1.Pod); ok && !yield(p) {
				return
			}
		}
	}
}

// NodeOf is the node an object names itself.
func (v NodeView) NodeOf(resource, namespace, name string) string {
	for gr, def := range v.State.defs.Load().stored {
		if gr.Resource != resource || def.Computed != nil || def.Load != nil { // a custom object says of itself what its author likes
			continue
		}
		o, found := v.State.peek(gr, namespace, name)
		if a, ok := o.(*storagev1.VolumeAttachment); found && ok {
			return a.Spec.NodeName // nobody can select by it, so it is no field
		}
		if field := def.Fields["spec.nodeName"]; found && field != nil {
			return field(o)
		}
	}
	return ""
}

// Claim finds a volume claim.
func (v NodeView) Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool) {
	o, found := v.State.peek(schema.GroupResource{Resource: "persistentvolumeclaims"}, namespace, name)
	if !found {
		return nil, false
	}
	return o.(*corev1.PersistentVolumeClaim), true
}

// Volume finds a volume.
func (v NodeView) Volume(name string) (*corev1.PersistentVolume, bool) {
	o, found := v.State.peek(schema.GroupResource{Resource: "persistentvolumes"}, "", name)
	if !found {
		return nil, false
	}
	return o.(*corev1.PersistentVolume), true
}

// Accounts is the state as authentication reads it.
type Accounts struct{ State *State }

// ServiceAccount finds one.
func (a Accounts) ServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return lookup[*corev1.ServiceAccount](ctx, a.State, "serviceaccounts", namespace, name)
}

// Pod finds one.
func (a Accounts) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return lookup[*corev1.Pod](ctx, a.State, "pods", namespace, name)
}

// Secret finds one.
func (a Accounts) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return lookup[*corev1.Secret](ctx, a.State, "secrets", namespace, name)
}

// Node finds one.
func (a Accounts) Node(ctx context.Context, name string) (*corev1.Node, error) {
	return lookup[*corev1.Node](ctx, a.State, "nodes", "", name)
}

// errAccountsAway says that the store does not tell whether a token is still good: that is no reason to say that it is not.
var errAccountsAway = errors.New("the store does not say whether the token is good")

// lookupTimeout is how long a token waits to hear what has changed, once its cache has been loaded.
const lookupTimeout = 250 * time.Millisecond

// lookup reads an object that a token speaks of, fresh. While the store does not say what has changed, what the cache has counts, as
// it does for roles: the request itself needs the store soon enough.
func lookup[P kind.Object](ctx context.Context, s *State, resource, namespace, name string) (P, error) {
	var none P
	gr := schema.GroupResource{Resource: resource}
	fresh := ctx
	if s.Cache(s.Def(gr)).Rev() > 0 {
		var stop context.CancelFunc
		fresh, stop = context.WithTimeout(ctx, lookupTimeout)
		defer stop()
	}
	o, err := s.Get(fresh, gr, namespace, name)
	if apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) {
		cached, found := s.peek(gr, namespace, name)
		if !found {
			return none, fmt.Errorf("%w: %w", errAccountsAway, err)
		}
		o, err = cached, nil
	}
	if err != nil {
		return none, err
	}
	return o.(P), nil
}
