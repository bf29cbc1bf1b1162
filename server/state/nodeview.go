package state

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// NodeView finds the objects by which the Node authorizer decides.
type NodeView struct{ State *State }

// Pods yields the Pods of a node.
func (v NodeView) Pods(node string) iter.Seq[*corev1.Pod] {
	by := client.ByNode()
	entries := v.State.Cache(v.State.Def(gr.Pods)).By(by.Name, by.Values, node)
	return func(yield func(*corev1.Pod) bool) {
		for _, e := range entries {
			if p, ok := e.Object().(*corev1.Pod); ok && !yield(p) {
				return
			}
		}
	}
}

// NodeOf returns the node that an object of a resource names in its spec, or "".
func (v NodeView) NodeOf(resource, namespace, name string) string {
	for on, def := range v.State.defs.Load().stored {
		if on.Resource != resource || def.Computed != nil || def.Load != nil { // the author of a custom object may write any node into it
			continue
		}
		o, found := v.State.peek(on, namespace, name)
		if a, ok := o.(*storagev1.VolumeAttachment); found && ok {
			return a.Spec.NodeName // its spec.nodeName is no field that clients can select by
		}
		if field := def.Fields["spec.nodeName"]; found && field != nil {
			return field(o)
		}
	}
	return ""
}

// Object finds an object of any resource.
func (v NodeView) Object(on schema.GroupResource, namespace, name string) (kind.Object, bool) {
	return v.State.peek(on, namespace, name)
}

// Claim finds a PersistentVolumeClaim.
func (v NodeView) Claim(namespace, name string) (*corev1.PersistentVolumeClaim, bool) {
	o, found := v.State.peek(schema.GroupResource{Resource: "persistentvolumeclaims"}, namespace, name)
	if !found {
		return nil, false
	}
	return o.(*corev1.PersistentVolumeClaim), true
}

// Volume finds a PersistentVolume.
func (v NodeView) Volume(name string) (*corev1.PersistentVolume, bool) {
	o, found := v.State.peek(schema.GroupResource{Resource: "persistentvolumes"}, "", name)
	if !found {
		return nil, false
	}
	return o.(*corev1.PersistentVolume), true
}
