package server

import (
	"iter"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/watch"
)

// part is a view of some objects of a cache. It holds nothing of its own.
type part struct {
	*view
	scope client.Scope
}

func newPart(all *view, s client.Scope) *part {
	switch {
	case s.Node != "":
		all.sel.Index = s.Node
		all.sel.Keep = func(o kind.Object) bool { return onNode(o, s.Node) }
	case s.Name != "" && s.Namespace == "" && all.def.Scope == kind.Namespaced:
		all.sel.Keep = func(o kind.Object) bool { return o.GetName() == s.Name }
	case s.Name != "":
		all.sel.Prefix, all.sel.Exact = all.def.Key(s.Namespace, s.Name), true
	default:
		all.sel.Prefix = scope(all.def, s.Namespace)
	}
	return &part{view: all, scope: s}
}

// Only is the part of the view in a scope. Its events are those of changes that when, if there, accepts.
func (v *view) Only(s client.Scope, when func(old, now kind.Object) bool) client.View {
	own := *v
	own.sel.When = when
	if s == (client.Scope{}) {
		return &own
	}
	return newPart(&own, s)
}

func onNode(o kind.Object, node string) bool {
	p, ok := o.(*corev1.Pod)
	return ok && p.Spec.NodeName == node
}

func (p *part) shows(o kind.Object) bool {
	s := p.scope
	return (s.Node == "" || onNode(o, s.Node)) && (s.Name == "" || o.GetName() == s.Name) && (s.Namespace == "" || o.GetNamespace() == s.Namespace)
}

// Get finds an object, if it is in the scope.
func (p *part) Get(namespace, name string) (kind.Object, bool) {
	o, found := p.view.Get(namespace, name)
	if !found || !p.shows(o) {
		return nil, false
	}
	return o, true
}

// Outlines is the part with outlines in the place of objects.
func (p *part) Outlines() client.View {
	own := *p.view
	own.show = (*watch.Entry).Outline
	return &part{view: &own, scope: p.scope}
}

// Whole finds an object that may be shown as an outline otherwise, if it is in the scope.
func (p *part) Whole(namespace, name string) (kind.Object, bool) {
	o, found := p.view.Whole(namespace, name)
	if !found || !p.shows(o) {
		return nil, false
	}
	return o, true
}

// List yields the objects of the scope and of a namespace, or all.
func (p *part) List(namespace string) iter.Seq[kind.Object] {
	if p.scope.Node != "" {
		return p.only(p.view.By(client.ByNode(), p.scope.Node), namespace)
	}
	if namespace == "" {
		namespace = p.scope.Namespace
	}
	return p.only(p.view.List(namespace), "")
}

// By yields what an index finds in the scope.
func (p *part) By(index client.Index, value string) iter.Seq[kind.Object] {
	return p.only(p.view.By(index, value), "")
}

func (p *part) only(all iter.Seq[kind.Object], namespace string) iter.Seq[kind.Object] {
	return func(yield func(kind.Object) bool) {
		for o := range all {
			if p.shows(o) && (namespace == "" || o.GetNamespace() == namespace) && !yield(o) {
				return
			}
		}
	}
}
