package localclient

import (
	"iter"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/server/state"
	"proa.dev/watch"
)

// scopedView is a view of the objects in a scope: of a namespace, of a node, or of one name. It reads the cache of the
// whole resource.
type scopedView struct {
	*view
	scope client.Scope
}

// newScopedView limits a view to a scope.
func newScopedView(all *view, s client.Scope) *scopedView {
	switch {
	case s.Node != "":
		all.sel.Index = s.Node
		all.sel.Keep = func(o kind.Object) bool { return isOnNode(o, s.Node) }
	case s.Name != "" && s.Namespace == "" && all.def.Scope == kind.Namespaced:
		all.sel.Keep = func(o kind.Object) bool { return o.GetName() == s.Name }
	case s.Name != "":
		all.sel.Prefix, all.sel.Exact = all.def.Key(s.Namespace, s.Name), true
	default:
		all.sel.Prefix = state.KeyPrefix(all.def, s.Namespace)
	}
	return &scopedView{view: all, scope: s}
}

// Only returns a view of the objects in a scope. Its events are the changes for which when returns true; all when it is
// nil.
func (v *view) Only(s client.Scope, when func(old, now kind.Object) bool) client.View {
	own := *v
	own.sel.When = when
	if s == (client.Scope{}) {
		return &own
	}
	return newScopedView(&own, s)
}

// isOnNode says that an object is a Pod of a node.
func isOnNode(o kind.Object, node string) bool {
	p, ok := o.(*corev1.Pod)
	return ok && p.Spec.NodeName == node
}

// includes says that an object is in the scope.
func (p *scopedView) includes(o kind.Object) bool {
	s := p.scope
	return (s.Node == "" || isOnNode(o, s.Node)) && (s.Name == "" || o.GetName() == s.Name) &&
		(s.Namespace == "" || o.GetNamespace() == s.Namespace)
}

// Get finds an object, if it is in the scope.
func (p *scopedView) Get(namespace, name string) (kind.Object, bool) {
	o, found := p.view.Get(namespace, name)
	if !found || !p.includes(o) {
		return nil, false
	}
	return o, true
}

// Outlines returns the same view of outlines in place of whole objects.
func (p *scopedView) Outlines() client.View {
	own := *p.view
	own.show = (*watch.Entry).Outline
	return &scopedView{view: &own, scope: p.scope}
}

// Whole finds a whole object, also in a view of outlines, if it is in the scope.
func (p *scopedView) Whole(namespace, name string) (kind.Object, bool) {
	o, found := p.view.Whole(namespace, name)
	if !found || !p.includes(o) {
		return nil, false
	}
	return o, true
}

// List yields the objects of the scope that are in a namespace, or in all.
func (p *scopedView) List(namespace string) iter.Seq[kind.Object] {
	if p.scope.Node != "" {
		return p.filter(p.view.By(client.ByNode(), p.scope.Node), namespace)
	}
	if namespace == "" {
		namespace = p.scope.Namespace
	}
	return p.filter(p.view.List(namespace), "")
}

// By yields the objects of the scope that an index finds.
func (p *scopedView) By(index client.Index, value string) iter.Seq[kind.Object] {
	return p.filter(p.view.By(index, value), "")
}

// filter yields those objects that are in the scope and in a namespace, or in all.
func (p *scopedView) filter(all iter.Seq[kind.Object], namespace string) iter.Seq[kind.Object] {
	return func(yield func(kind.Object) bool) {
		for o := range all {
			if p.includes(o) && (namespace == "" || o.GetNamespace() == namespace) && !yield(o) {
				return
			}
		}
	}
}
