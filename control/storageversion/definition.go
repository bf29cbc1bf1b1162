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
	"proa.dev/kinds/gr"
)

type definition = apiextensionsv1.CustomResourceDefinition

// definitionOf is the definition of what a migration migrates, or nil if that is no custom resource. It is the caller's.
func definitionOf(c *control.Cluster, m *migration) *definition {
	d, found := control.Whole[*definition](c, gr.CustomResourceDefinitions, "", m.Spec.Resource.Resource+"."+m.Spec.Resource.Group)
	if !found {
		return nil
	}
	return d.DeepCopy()
}

// startDefinition says in a definition that its objects are being migrated.
func startDefinition(ctx context.Context, c *control.Cluster, m *migration, now time.Time) error {
	d := definitionOf(c, m)
	if d == nil || !begin(d, m.Name, now) {
		return nil
	}
	_, err := c.Update(ctx, gr.CustomResourceDefinitions, d, "status")
	return err
}

// finishDefinition says in a definition how it went. The update is refused if the definition has changed, because then objects
// may be stored in another version again.
func finishDefinition(ctx context.Context, c *control.Cluster, m *migration, now time.Time) error {
	d := definitionOf(c, m)
	if d == nil || !conclude(d, is(m, storagemigrationv1.MigrationSucceeded), now) {
		return nil
	}
	_, err := c.Update(ctx, gr.CustomResourceDefinitions, d, "status")
	return err
}

// begin changes the status of a definition for the start of a migration. It remembers the generation that it saw.
func begin(d *definition, migration string, now time.Time) (changed bool) {
	return condition(d, apiextensionsv1.CustomResourceDefinitionCondition{
		Status: apiextensionsv1.ConditionTrue, Reason: "MigrationRunning", Message: fmt.Sprintf("Migration %s is running", migration),
	}, now)
}

// conclude changes the status of a definition for the end of a migration. If the definition is as it was when it began, all
// objects are stored in its one storage version now.
func conclude(d *definition, success bool, now time.Time) (changed bool) {
	was := migrating(d)
	if was != nil && was.Status == apiextensionsv1.ConditionFalse {
		return false // it has been told
	}
	same := was != nil && was.ObservedGeneration == d.Generation
	is := apiextensionsv1.CustomResourceDefinitionCondition{Status: apiextensionsv1.ConditionFalse, Reason: "MigrationFailed", Message: "The migration has failed"}
	switch {
	case success && same:
		is.Reason, is.Message = "MigrationSucceeded", "The migration has succeeded and the stored versions have been updated"
	case success:
		is.Reason, is.Message = "MigrationSucceeded", "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
	}
	condition(d, is, now)
	if same && success {
		for _, v := range d.Spec.Versions {
			if v.Storage {
				d.Status.StoredVersions = []string{v.Name}
				break
			}
		}
	}
	return true
}

func migrating(d *definition) *apiextensionsv1.CustomResourceDefinitionCondition {
	at := slices.IndexFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.StorageMigrating
	})
	if at < 0 {
		return nil
	}
	return &d.Status.Conditions[at]
}

func condition(d *definition, c apiextensionsv1.CustomResourceDefinitionCondition, now time.Time) (changed bool) {
	c.Type, c.LastTransitionTime, c.ObservedGeneration = apiextensionsv1.StorageMigrating, metav1.NewTime(now), d.Generation
	was := migrating(d)
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
