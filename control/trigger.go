package control

import (
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// ControllerOwner wakes the key of the object's controller owner, if that is of the given kind.
func ControllerOwner(group, kindName string) func(*Cluster, kind.Object) iter.Seq[Key] {
	return func(_ *Cluster, o kind.Object) iter.Seq[Key] {
		return func(yield func(Key) bool) {
			ref := metav1.GetControllerOf(o)
			if ref == nil || ref.Kind != kindName {
				return
			}
			if gv, err := schema.ParseGroupVersion(ref.APIVersion); err == nil && gv.Group == group {
				yield(Key{o.GetNamespace(), ref.Name})
			}
		}
	}
}

// SameKey wakes the key with the namespace and name of the changed object.
func SameKey(_ *Cluster, o kind.Object) iter.Seq[Key] {
	return func(yield func(Key) bool) { yield(KeyOf(o)) }
}

// NamespaceOf wakes the key of the namespace that the changed object is in.
func NamespaceOf(_ *Cluster, o kind.Object) iter.Seq[Key] {
	return func(yield func(Key) bool) { yield(Key{Name: o.GetNamespace()}) }
}

// PodsOnNode wakes the Pods that are bound to the changed Node.
func PodsOnNode(c *Cluster, node kind.Object) iter.Seq[Key] {
	return func(yield func(Key) bool) {
		for p := range c.views[gr.Pods].By(client.ByNode(), node.GetName()) {
			if !yield(KeyOf(p)) {
				return
			}
		}
	}
}

// AllKeys wakes the keys of all objects of a resource whose view the controller has.
func AllKeys(on schema.GroupResource) func(*Cluster, kind.Object) iter.Seq[Key] {
	return func(c *Cluster, _ kind.Object) iter.Seq[Key] {
		return func(yield func(Key) bool) {
			for o := range c.views[on].List("") {
				if !yield(KeyOf(o)) {
					return
				}
			}
		}
	}
}
