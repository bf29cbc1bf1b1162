package client

import (
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/podrefs"
)

// Index finds the objects of a view by a value that is computed from each object. Two indexes of one resource must have
// different names.
type Index struct {
	Name string
	// Values returns the values of an object. It must be pure and fast, because it runs on every change.
	Values func(kind.Object) []string
}

// ByOwner finds objects by the UIDs of all their owners.
func ByOwner() Index {
	return Index{"owner", func(o kind.Object) []string {
		refs := o.GetOwnerReferences()
		if len(refs) == 0 {
			return nil
		}
		out := make([]string, len(refs))
		for i := range refs {
			out[i] = string(refs[i].UID)
		}
		return out
	}}
}

// ByNode finds Pods by the node they are bound to; the empty value finds the Pods without a node.
func ByNode() Index {
	return Index{"node", func(o kind.Object) []string {
		if p, ok := o.(*corev1.Pod); ok {
			return []string{p.Spec.NodeName}
		}
		return nil
	}}
}

// ByClaim finds Pods by the PersistentVolumeClaims they use, as namespace/name.
func ByClaim() Index {
	return Index{"claim", func(o kind.Object) (out []string) {
		if p, ok := o.(*corev1.Pod); ok {
			for _, name := range podrefs.VolumeClaims(p) {
				out = append(out, p.Namespace+"/"+name)
			}
		}
		return out
	}}
}
