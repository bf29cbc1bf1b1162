package storageversion

import (
	"context"
	"fmt"
	"slices"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
)

type definition = apiextensionsv1.CustomResourceDefinition

// definitionOf returns a copy of the definition of a migration's resource, or nil if that is no custom resource.
func definitionOf(c *control.Cluster, m *migration) *definition {
	d, found := control.Whole[*definition](c, gr.CustomResourceDefinitions, "", m.Spec.Resource.Resource+"."+m.Spec.Resource.Group)
	if !found {
		return nil
	}
	return d.DeepCopy()
}

// startDefinition writes into a definition that its objects are being migrated.
func startDefinition(ctx context.Context, c *control.Cluster, m *migration, now time.Time) error {
	d := definitionOf(c, m)
	if d == nil || !startMigrating(d, m.Name, now) {
		return nil
	}
	_, err := c.Update(ctx, gr.CustomResourceDefinitions, d, "status")
	return err
}

// finishDefinition writes the result of a migration into the definition. The update conflicts if the definition has changed,
// because then objects may be stored in another version again.
func finishDefinition(ctx context.Context, c *control.Cluster, m *migration, now time.Time) error {
	d := definitionOf(c, m)
	if d == nil || !endMigrating(d, isTrue(m, storagemigrationv1.MigrationSucceeded), now) {
		return nil
	}
	_, err := c.Update(ctx, gr.CustomResourceDefinitions, d, "status")
	return err
}

// startMigrating sets the condition StorageMigrating of a definition, with the generation at the start of a migration.
func startMigrating(d *definition, migration string, now time.Time) (changed bool) {
	return setMigratingCondition(d, apiextensionsv1.CustomResourceDefinitionCondition{
		Status: apiextensionsv1.ConditionTrue, Reason: "MigrationRunning", Message: fmt.Sprintf("Migration %s is running", migration),
	}, now)
}

// endMigrating updates the status of a definition at the end of a migration. If the definition has not changed since the start,
// all objects are stored in its storage version, and the stored versions are reduced to that.
func endMigrating(d *definition, success bool, now time.Time) (changed bool) {
	was := migratingCondition(d)
	if was != nil && was.Status == apiextensionsv1.ConditionFalse {
		return false // it was written before
	}
	unchanged := was != nil && was.ObservedGeneration == d.Generation
	is := apiextensionsv1.CustomResourceDefinitionCondition{Status: apiextensionsv1.ConditionFalse, Reason: "MigrationFailed",
		Message: "The migration has failed"}
	switch {
	case success && unchanged:
		is.Reason, is.Message = "MigrationSucceeded", "The migration has succeeded and the stored versions have been updated"
	case success:
		is.Reason, is.Message = "MigrationSucceeded", "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
	}
	setMigratingCondition(d, is, now)
	if unchanged && success {
		for _, v := range d.Spec.Versions {
			if v.Storage {
				d.Status.StoredVersions = []string{v.Name}
				break
			}
		}
	}
	return true
}

func migratingCondition(d *definition) *apiextensionsv1.CustomResourceDefinitionCondition {
	at := slices.IndexFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.StorageMigrating
	})
	if at < 0 {
		return nil
	}
	return &d.Status.Conditions[at]
}

func setMigratingCondition(d *definition, c apiextensionsv1.CustomResourceDefinitionCondition, now time.Time) (changed bool) {
	c.Type, c.LastTransitionTime, c.ObservedGeneration = apiextensionsv1.StorageMigrating, metav1.NewTime(now), d.Generation
	was := migratingCondition(d)
	if was == nil {
		d.Status.Conditions = append(d.Status.Conditions, c)
		return true
	}
	if was.Status == c.Status && was.Message == c.Message && was.Reason == c.Reason && was.ObservedGeneration == c.ObservedGeneration {
		return false
	}
	*was = c
	return true
}
