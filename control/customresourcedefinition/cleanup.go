package customresourcedefinition

import (
	"context"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// cleaner deletes the objects of definitions that are being deleted.
type cleaner struct {
	// isBuiltIn reports whether a resource is served even without a definition.
	isBuiltIn func(schema.GroupResource) bool
}

// cleanupController returns the controller that removes the finalizer of definitions once their objects are deleted.
func cleanupController(isBuiltIn func(schema.GroupResource) bool) control.Controller {
	l := &cleaner{isBuiltIn}
	return control.Controller{
		Name: "crd-finalizer", For: gr.CustomResourceDefinitions, Outlines: true, Workers: 5,
		When:      func(_, now kind.Object) bool { return now != nil && now.GetDeletionTimestamp() != nil },
		Reads:     []schema.GroupResource{control.Any()},
		Writes:    []control.Write{{On: gr.CustomResourceDefinitions, Do: "update/status"}, {On: control.Any(), Do: "deletecollection"}},
		Reconcile: l.reconcile,
	}
}

// recheck is the interval at which the remaining objects of a definition are counted.
const recheck = time.Second

// reconcile deletes the objects of a definition that is being deleted, and then removes its finalizer.
func (l *cleaner) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	d, found := control.Whole[*crd](c, gr.CustomResourceDefinitions, "", k.Name)
	if !found || d.DeletionTimestamp == nil || !slices.Contains(d.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
		return 0, nil
	}
	on := schema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}
	var r remains
	switch {
	case l.isBuiltIn(on):
		r.overlaps = true
	case isTrue(d, apiextensionsv1.Established):
		r = l.deleteObjects(ctx, c, on)
	default:
		// If it becomes established at this moment, the write below conflicts, and the key is reconciled again.
		r.neverServed = true
	}
	return writeOutcome(ctx, c, d, r)
}

// writeOutcome writes the condition Terminating of a definition if it has changed, and removes the finalizer when no objects
// remain.
func writeOutcome(ctx context.Context, c *control.Cluster, d *crd, r remains) (time.Duration, error) {
	now := time.Now()
	cond, done := r.condition(d, now)
	next := d.DeepCopy()
	next.Status.Conditions = setCondition(next.Status.Conditions, cond, metav1.NewTime(now))
	if done {
		next.Finalizers = slices.DeleteFunc(next.Finalizers,
			func(f string) bool { return f == apiextensionsv1.CustomResourceCleanupFinalizer })
	}
	if done || !sameConditions(next.Status.Conditions, d.Status.Conditions) {
		if _, err := c.Update(ctx, gr.CustomResourceDefinitions, next, "status"); err != nil {
			return 0, control.IgnoreNotFound(err)
		}
	}
	if err := r.failure(); err != nil || done {
		return 0, err
	}
	return recheck, nil
}

// deleteObjects deletes all objects of a resource that are not being deleted yet, and returns what remains.
func (l *cleaner) deleteObjects(ctx context.Context, c *control.Cluster, on schema.GroupResource) (r remains) {
	v, err := c.Open(ctx, on)
	if err == nil {
		err = v.Reach(ctx, 0)
	}
	if err != nil {
		r.listing = err
		return r
	}
	var errs []error
	for _, namespace := range namespacesWithLiveObjects(v.List("")) {
		if err := c.DeleteAll(ctx, on, namespace, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	r.deleting = utilerrors.NewAggregate(errs)
	if r.checking = v.Reach(ctx, 0); r.checking == nil {
		for range v.List("") {
			r.objects++
		}
		if unreadable := v.Unreadable(""); len(unreadable) > 0 {
			r.checking = fmt.Errorf("%d stored objects cannot be decoded, the first is %s; delete them with ignoreStoreReadErrorWithClusterBreakingPotential", len(unreadable), unreadable[0])
		}
	}
	return r
}
