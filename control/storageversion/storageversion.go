// Package storageversion carries out StorageVersionMigrations: it writes every object of a resource again without a change, so
// that it is stored in the current storage version and encrypted with the current key. Of several migrations of one resource
// the oldest runs first.
//
// A migration runs in steps, each of which is a write of its status: it is started, it gets the revision up to which objects
// are to be written again, the objects are written, it has succeeded or failed, and it is no longer running. The status of a
// custom resource's definition says, too, that its objects are being migrated, and in the end lists only the versions in which
// objects are still stored.
package storageversion

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Find returns the descriptor of a resource that is served, or nil.
type Find func(schema.GroupResource) *kind.Def

// Controller returns the controller.
func Controller(find Find) control.Controller {
	m := &migrator{find: find}
	return control.Controller{
		Name: "storage-version-migrator-controller", For: gr.StorageVersionMigrations, Workers: 5,
		Reads: []schema.GroupResource{gr.CustomResourceDefinitions, control.Any()},
		Writes: []control.Write{
			{On: gr.StorageVersionMigrations, Do: "update/status"}, {On: gr.CustomResourceDefinitions, Do: "update/status"},
			{On: control.Any(), Do: "update"},
		},
		Triggers: []control.Trigger{{On: gr.StorageVersionMigrations, Keys: siblings}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			have, found := control.Get[*migration](c, gr.StorageVersionMigrations, "", k.Name)
			if !found {
				return 0, nil
			}
			again, err := m.step(ctx, c, have.DeepCopy())
			if apierrors.IsNotFound(err) {
				return 0, nil
			}
			return again, err
		},
	}
}

type migration = storagemigrationv1.StorageVersionMigration

// siblings yields the other migrations of the same resource, one of which may be able to start.
func siblings(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		of, ok := o.(*migration)
		if !ok {
			return
		}
		for m := range control.List[*migration](c, gr.StorageVersionMigrations, "") {
			if m.Spec.Resource == of.Spec.Resource && m.Name != of.Name && !yield(control.KeyOf(m)) {
				return
			}
		}
	}
}

// discoveryTimeout is how long a migration waits for its resource: a custom resource is served a little later than its definition
// exists.
const discoveryTimeout = time.Minute

type migrator struct{ find Find }

// step makes the next step of a migration, which it may change.
func (s *migrator) step(ctx context.Context, c *control.Cluster, m *migration) (time.Duration, error) {
	now := time.Now()
	resource := schema.GroupResource{Group: m.Spec.Resource.Group, Resource: m.Spec.Resource.Resource}
	switch nextAction(m, control.List[*migration](c, gr.StorageVersionMigrations, "")) {
	case start:
		if err := startDefinition(ctx, c, m, now); err != nil {
			return 0, err
		}
		setRunning(m, progress{}, nil, now)
		return 0, writeStatus(ctx, c, m)
	case prepare:
		def := s.find(resource)
		if def == nil {
			return waitForResource(ctx, c, m, now, "resource does not exist in discovery")
		}
		if verbs := []string{"update", "patch", "list"}; slices.ContainsFunc(verbs, func(v string) bool { return !def.Serves(v) }) {
			setFailed(m, fmt.Sprintf("resource %q does not support discovery operations: %v",
				def.GroupVersion().WithResource(def.Plural).String(), verbs), now)
			return 0, writeStatus(ctx, c, m)
		}
		// All resources share their revisions. Objects up to the revision of the migration itself may be stored in an old version.
		m.Status.ResourceVersion = m.ResourceVersion
		return 0, writeStatus(ctx, c, m)
	case rewrite:
		if s.find(resource) == nil {
			return waitForResource(ctx, c, m, now, unhandledMessage("unable to obtain GVR from discovery"))
		}
		return 0, s.run(ctx, c, m, resource)
	case finish:
		if err := finishDefinition(ctx, c, m, now); err != nil {
			return 0, err
		}
		setFinished(m, now)
		return 0, writeStatus(ctx, c, m)
	case wait:
	}
	return 0, nil
}

// waitForResource waits for a resource for a while, and then fails the migration.
func waitForResource(ctx context.Context, c *control.Cluster, m *migration, now time.Time, message string) (time.Duration, error) {
	if left := m.CreationTimestamp.Add(discoveryTimeout).Sub(now); left > 0 {
		return min(left, 10*time.Second), nil
	}
	setFailed(m, message, now)
	return 0, writeStatus(ctx, c, m)
}

func writeStatus(ctx context.Context, c *control.Cluster, m *migration) error {
	_, err := c.Update(ctx, gr.StorageVersionMigrations, m, "status")
	return err
}
