// Package frameworktest has a cluster of objects in memory for tests of scheduler plugins.
package frameworktest

import (
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// Objects has objects by resource and key. It implements framework.Cluster.
type Objects map[schema.GroupResource]map[string]kind.Object

// Put adds or replaces an object.
func (t Objects) Put(on schema.GroupResource, o kind.Object) {
	if t[on] == nil {
		t[on] = map[string]kind.Object{}
	}
	t[on][o.GetNamespace()+"/"+o.GetName()] = o
}

// Get returns an object.
func (t Objects) Get(on schema.GroupResource, namespace, name string) (kind.Object, bool) {
	o, found := t[on][namespace+"/"+name]
	return o, found
}

// List yields the objects of a namespace, or of all, in the order of their keys.
func (t Objects) List(on schema.GroupResource, namespace string) iter.Seq[kind.Object] {
	return func(yield func(kind.Object) bool) {
		for _, key := range slices.Sorted(maps.Keys(t[on])) {
			if o := t[on][key]; (namespace == "" || o.GetNamespace() == namespace) && !yield(o) {
				return
			}
		}
	}
}
