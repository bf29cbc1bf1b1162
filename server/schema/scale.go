package schema

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// ScaleApply is a server-side apply to the scale of an object.
type ScaleApply struct {
	// ParentKind is the kind and stored version of the scaled object, and ParentOwners are its managedFields.
	ParentKind   schema.GroupVersionKind
	ParentOwners []metav1.ManagedFieldsEntry
	// ReplicasPath is where the scaled object has the number of desired replicas; nil means spec.replicas.
	ReplicasPath []string
	// Live is the current scale; its managedFields are set here.
	Live interface {
		runtime.Object
		metav1.Object
	}
	Patch   map[string]any
	Manager string
	Force   Force
}

// ApplyScale merges an applied Scale into the live one, and returns the result with the managedFields that the scaled
// object then has. The owner of the replicas of the object owns those of its scale. When nobody does, they belong to
// "before-first-apply", so that an apply that changes them without force is a Conflict. The manager is that of the kind
// Scale.
func (m *Manager) ApplyScale(a ScaleApply) (scale runtime.Object, owners []metav1.ManagedFieldsEntry, err error) {
	defer recoverError(&err)
	replicas := fieldpath.MakePathOrDie("spec", "replicas")
	if a.ReplicasPath != nil {
		replicas = nil
		for _, name := range a.ReplicasPath {
			replicas = append(replicas, fieldpath.FieldNameElement(name))
		}
	}
	paths := managedfields.ResourcePathMappings{a.ParentKind.GroupVersion().String(): replicas}
	for _, gv := range m.owner.scheme.VersionsForGroupKind(a.ParentKind.GroupKind()) {
		paths[gv.String()] = replicas
	}
	between := managedfields.NewScaleHandler(a.ParentOwners, a.ParentKind.GroupVersion(), paths)
	entries, err := between.ToSubresource()
	if err != nil {
		return nil, nil, fmt.Errorf("owners of the replicas: %w", err)
	}
	a.Live.SetManagedFields(entries)
	if scale, err = m.Apply(a.Live, a.Patch, a.Manager, a.Force); err != nil {
		return nil, nil, err
	}
	owners, err = between.ToParent(scale.(metav1.Object).GetManagedFields())
	return scale, owners, err
}
