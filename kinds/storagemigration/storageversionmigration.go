package storagemigration

import (
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// StorageVersionMigrations request that the stored objects of a resource are rewritten in the current storage
// version.
func StorageVersionMigrations() *kind.Def {
	type migration = storagemigrationv1.StorageVersionMigration
	return kind.Define(kind.Resource[migration]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: storagemigrationv1.GroupName, Version: "v1", Kind: "StorageVersionMigration"},
			Plural:           "storageversionmigrations", Scope: kind.Cluster,
			StorageVersion: "v1beta1", Older: kind.SameLayout("v1beta1"),
			RequiresResourceVersion: true,
		},
		Spec:     func(m *migration) any { return &m.Spec },
		Status:   func(m *migration) any { return &m.Status },
		Validate: validateMigration,
		Subs: []kind.Sub[migration]{{
			Name:     "status",
			Reset:    []string{"metadata", "spec"},
			Prepare:  func(m, old *migration) { metav1.ResetObjectMetaForStatus(m, old) },
			Validate: validateMigrationStatus,
		}},
		Columns: []kind.Column[migration]{
			// Unlike in other kinds, this column has no format.
			{Name: "Name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"], Value: func(m *migration) any { return m.Name }},
			{Name: "Resource", Description: "GroupResource to migrate", Value: func(m *migration) any {
				return schema.GroupResource{Group: m.Spec.Resource.Group, Resource: m.Spec.Resource.Resource}.String()
			}},
			{Name: "Status", Description: "Status of the migration", Value: func(m *migration) any { return stateText(m) }},
		},
	})
}

func stateText(m *storagemigrationv1.StorageVersionMigration) string {
	state := "Unknown"
	for _, c := range m.Status.Conditions {
		switch storagemigrationv1.MigrationConditionType(c.Type) {
		case storagemigrationv1.MigrationRunning, storagemigrationv1.MigrationFailed, storagemigrationv1.MigrationSucceeded:
			if c.Status == metav1.ConditionTrue {
				state = c.Type
			}
		}
	}
	return state
}
