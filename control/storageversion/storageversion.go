// Package storageversion carries out StorageVersionMigrations: it writes every object of a resource again, unchanged, so that
// each is stored the way the server stores it now. Of several migrations of one resource the oldest goes first.
//
// A migration runs in steps, each of which is a write of its status: it is started, it gets the revision up to which objects
// are to be written again, the objects are written, it has succeeded or failed, and it is no longer running. The definition
// of a custom resource says, too, that its objects are being migrated, and in the end forgets the versions in which none is stored
// any more.
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
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Find returns the descriptor of a resource that is served, or nil.
type Find func(schema.GroupResource) *kind.Def

// Controller returns the loop.
func Controller(find Find) control.Controller {
	m := &migrator{find: find}
	return control.Controller{
		Name: "storage-version-migrator-controller", For: gr.StorageVersionMigrations, Workers: 5,
		Reads: []schema.GroupResource{gr.CustomResourceDefinitions, control.Any()},
		Writes: []control.Write{
			{On: gr.StorageVersionMigrations, Do: "update/status"}, {On: gr.CustomResourceDefinitions, Do: "update/status"}, {On: control.Any(), Do: "update"},
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

// siblings wakes the migrations of the same resource, one of which may have its turn now.
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

// patience is how long a resource may be unknown: that of a custom one comes a little later than its definition.
const patience = time.Minute

type migrator struct{ find Find }

// step takes a migration one step on. The object is the caller's.
func (s *migrator) step(ctx context.Context, c *control.Cluster, m *migration) (time.Duration, error) {
	now := time.Now()
	resource := schema.GroupResource{Group: m.Spec.Resource.Group, Resource: m.Spec.Resource.Resource}
	switch next(m, control.List[*migration](c, gr.StorageVersionMigrations, "")) {
	case start:
		if err := startDefinition(ctx, c, m, now); err != nil {
			return 0, err
		}
		running(m, progress{}, nil, now)
		return 0, store(ctx, c, m)
	case prepare:
		def := s.find(resource)
		if def == nil {
			return missing(ctx, c, m, now, "resource does not exist in discovery")
		}
		if verbs := []string{"update", "patch", "list"}; slices.ContainsFunc(verbs, func(v string) bool { return !def.Allows(v) }) {
			fail(m, fmt.Sprintf("resource %q does not support discovery operations: %v", def.GroupVersion().WithResource(def.Plural).String(), verbs), now)
			return 0, store(ctx, c, m)
		}
		// All resources share their revisions, so that of the migration itself is one before which nothing is known to be written
		// the new way.
		m.Status.ResourceVersion = m.ResourceVersion
		return 0, store(ctx, c, m)
	case rewrite:
		if s.find(resource) == nil {
			return missing(ctx, c, m, now, unhandled("unable to obtain GVR from discovery"))
		}
		return 0, s.run(ctx, c, m, resource)
	case finish:
		if err := finishDefinition(ctx, c, m, now); err != nil {
			return 0, err
		}
		finished(m, now)
		return 0, store(ctx, c, m)
	case wait:
	}
	return 0, nil
}

// missing waits for a resource for a while, and then gives up.
func missing(ctx context.Context, c *control.Cluster, m *migration, now time.Time, message string) (time.Duration, error) {
	if left := m.CreationTimestamp.Add(patience).Sub(now); left > 0 {
		return min(left, 10*time.Second), nil
	}
	fail(m, message, now)
	return 0, store(ctx, c, m)
}

func store(ctx context.Context, c *control.Cluster, m *migration) error {
	_, err := c.Update(ctx, gr.StorageVersionMigrations, m, "status")
	return err
}
