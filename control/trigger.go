package control

import (
	"iter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Owner wakes the controller of an object if that is of a kind in a group.
func Owner(group, kindName string) func(*Cluster, kind.Object) iter.Seq[Key] {
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

// Self wakes the key that has the object's own names.
func Self(_ *Cluster, o kind.Object) iter.Seq[Key] {
	return func(yield func(Key) bool) { yield(KeyOf(o)) }
}

// Home wakes the namespace that an object is in.
func Home(_ *Cluster, o kind.Object) iter.Seq[Key] {
	return func(yield func(Key) bool) { yield(Key{Name: o.GetNamespace()}) }
}

// OnNode wakes the Pods that are bound to a node.
func OnNode(c *Cluster, node kind.Object) iter.Seq[Key] {
	return func(yield func(Key) bool) {
		for p := range c.views[gr.Pods].By(client.ByNode(), node.GetName()) {
			if !yield(KeyOf(p)) {
				return
			}
		}
	}
}

// All wakes every key of a resource whose view the controller has.
func All(on schema.GroupResource) func(*Cluster, kind.Object) iter.Seq[Key] {
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
