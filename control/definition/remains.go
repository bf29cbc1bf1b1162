package definition

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"proa.dev/kinds/kind"
)

// remains is what is left of the resource of a definition that is being deleted, and what went wrong.
type remains struct {
	objects int // how many there still are
	// overlaps says that the resource is a built-in one, whose objects stay; neverServed, that it cannot have objects.
	overlaps, neverServed       bool
	listing, deleting, checking error
}

// failure is the first thing that went wrong, or nil.
func (r *remains) failure() error { return cmp.Or(r.listing, r.deleting, r.checking) }

// untouched are the namespaces, in order, with objects that nobody has deleted yet. The empty one is that of the whole cluster.
func untouched(objects iter.Seq[kind.Object]) []string {
	in := map[string]bool{}
	for o := range objects {
		if o.GetDeletionTimestamp() == nil {
			in[o.GetNamespace()] = true
		}
	}
	return slices.Sorted(maps.Keys(in))
}

// patience is how long the objects of a definition may take to go before its condition says that they do not.
const patience = time.Minute

// condition is the condition Terminating of a definition, and whether it may go.
func (r *remains) condition(d *crd, now time.Time) (c condition, done bool) {
	c = condition{Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue}
	switch {
	case r.overlaps:
		c.Reason, c.Message, done = "OverlappingBuiltInResource", "instances overlap with built-in resources in storage", true
	case r.neverServed:
		c.Reason, c.Message, done = "NeverEstablished", "resource was never established", true
	case r.listing != nil:
		c.Reason, c.Message = "InstanceDeletionFailed", fmt.Sprintf("could not list instances: %v", r.listing)
	case r.deleting != nil:
		c.Reason, c.Message = "InstanceDeletionFailed", fmt.Sprintf("could not issue all deletes: %v", r.deleting)
	case r.checking != nil:
		c.Reason, c.Message = "InstanceDeletionCheck", fmt.Sprintf("could not confirm zero CustomResources remaining: %v", r.checking)
	case r.objects == 0:
		c.Reason, c.Message, done = "InstanceDeletionCompleted", "removed all instances", true
	case d.DeletionTimestamp != nil && now.Sub(d.DeletionTimestamp.Time) >= patience:
		c.Reason, c.Message = "InstanceDeletionCheck", fmt.Sprintf("could not confirm zero CustomResources remaining: %v", context.DeadlineExceeded)
	default:
		c.Reason, c.Message = "InstanceDeletionInProgress", "CustomResource deletion is in progress"
	}
	if done {
		c.Status = apiextensionsv1.ConditionFalse
	}
	return c, done
}
