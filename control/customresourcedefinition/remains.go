package customresourcedefinition

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

// remains describes what is left of the resource of a definition that is being deleted, and which steps failed.
type remains struct {
	objects int // number of remaining objects
	// overlaps means that the resource is a built-in one, whose objects are kept; neverServed, that it cannot have objects.
	overlaps, neverServed       bool
	listing, deleting, checking error
}

// failure returns the first error, or nil.
func (r *remains) failure() error { return cmp.Or(r.listing, r.deleting, r.checking) }

// namespacesWithLiveObjects returns the sorted namespaces with objects that are not being deleted yet; empty for
// objects without a namespace.
func namespacesWithLiveObjects(objects iter.Seq[kind.Object]) []string {
	in := map[string]bool{}
	for o := range objects {
		if o.GetDeletionTimestamp() == nil {
			in[o.GetNamespace()] = true
		}
	}
	return slices.Sorted(maps.Keys(in))
}

// terminationTimeout is how long the deletion of a definition's objects may take before its condition reports a timeout.
const terminationTimeout = time.Minute

// condition returns the condition Terminating of a definition, and whether its finalizer can be removed.
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
	case d.DeletionTimestamp != nil && now.Sub(d.DeletionTimestamp.Time) >= terminationTimeout:
		c.Reason, c.Message = "InstanceDeletionCheck", fmt.Sprintf("could not confirm zero CustomResources remaining: %v",
			context.DeadlineExceeded)
	default:
		c.Reason, c.Message = "InstanceDeletionInProgress", "CustomResource deletion is in progress"
	}
	if done {
		c.Status = apiextensionsv1.ConditionFalse
	}
	return c, done
}
