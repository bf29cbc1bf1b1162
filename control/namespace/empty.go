package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/lib/parallel"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// leftover describes the remaining objects of one resource in a namespace.
type leftover struct {
	resource   schema.GroupResource
	objects    int
	notDeleted []string // the names of the objects that are not being deleted yet
	finalizers map[string]int
}

// result is the result of a reconcile: the remaining objects, errors, and the group versions whose resources are not known.
type result struct {
	remains  []leftover
	failures []error
	unknown  []schema.GroupVersion
}

// undiscoveredRetry is the interval at which a namespace is reconciled that waits for an aggregated API server to come back.
const undiscoveredRetry = 5 * time.Second

// maxConcurrent bounds the resources that are handled concurrently, and the objects of each that are deleted concurrently. The store
// takes several concurrent writes about as fast as one.
const maxConcurrent = 16

// empty deletes the objects in a namespace, writes its conditions, and removes its finalizer when nothing is left.
func (e *emptier) empty(ctx context.Context, c *control.Cluster, ns *corev1.Namespace) (time.Duration, error) {
	var unknown []schema.GroupVersion
	if e.Undiscovered != nil {
		unknown = e.Undiscovered()
	}
	definitionsErr := undecodableDefinitionsError(c) // before Custom reads the definitions
	resources := slices.Concat(e.Resources, e.Custom())
	others := slices.DeleteFunc(slices.Clone(resources), func(r schema.GroupResource) bool { return r == gr.Pods })
	var remains []leftover
	var failures []error
	// Pods are deleted first: objects that protect or limit them must exist while they run.
	if len(others) < len(resources) {
		remains, failures = e.deleteAll(ctx, c, ns.Name, []schema.GroupResource{gr.Pods}, false)
	}
	if len(remains) == 0 && len(failures) == 0 {
		remains, failures = e.deleteAll(ctx, c, ns.Name, others, false)
	}
	// Nothing may be overlooked: the views must show everything that is stored before the finalizer is removed.
	if len(remains) == 0 && len(failures) == 0 {
		remains, failures = e.deleteAll(ctx, c, ns.Name, resources, true)
	}
	if definitionsErr != nil {
		failures = append(failures, definitionsErr)
	}
	e.remember(ns.Name, func(s *progress) {
		s.reconciled, s.left = time.Now(), 0
		for _, l := range remains {
			s.left += l.objects
		}
	})
	again, err := e.writeConditions(ctx, c, ns, result{remains, failures, unknown})
	if err != nil {
		return 0, control.IgnoreNotFound(err)
	}
	if len(failures) > 0 {
		return 0, errors.Join(failures...)
	}
	if len(remains) > 0 {
		if slices.ContainsFunc(remains, func(l leftover) bool { return c.View(l.resource) == nil }) {
			again = writeInterval // no trigger wakes the controller for objects of this resource
		}
		return again, nil
	}
	if len(unknown) > 0 {
		return undiscoveredRetry, nil
	}
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	_, err = c.Update(ctx, gr.Namespaces, ns, "finalize")
	return 0, control.IgnoreNotFound(err)
}

// deleteAll deletes the objects of some resources, and returns what remains. upToDate waits until the views show everything that
// is stored.
func (e *emptier) deleteAll(ctx context.Context, c *control.Cluster, namespace string, resources []schema.GroupResource,
	upToDate bool) (remains []leftover, failures []error) {
	found := make([]leftover, len(resources))
	for _, err := range parallel.ForEach(len(resources), maxConcurrent, func(i int) (err error) {
		found[i], err = e.deleteResource(ctx, c, namespace, resources[i], upToDate)
		return err
	}) {
		if err != nil {
			failures = append(failures, err)
		}
	}
	return slices.DeleteFunc(found, func(l leftover) bool { return l.objects == 0 }), failures
}

func (e *emptier) deleteResource(ctx context.Context, c *control.Cluster, namespace string, on schema.GroupResource,
	upToDate bool) (leftover, error) {
	v := c.View(on)
	if v == nil {
		var err error
		if v, err = e.Open(ctx, on); err != nil {
			if !slices.Contains(e.Custom(), on) {
				err = nil // its definition was deleted, and with it all objects
			}
			return leftover{}, err
		}
	}
	if upToDate {
		if err := v.Reach(ctx, 0); err != nil {
			return leftover{}, err
		}
	}
	l := count(v, namespace, on)
	if len(l.notDeleted) == 0 {
		return l, undecodableError(v, namespace) // all others are being deleted
	}
	background := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	parallel.ForEach(len(l.notDeleted), maxConcurrent, func(i int) error { // DeleteAll below retries what fails here, and returns the error
		return c.Delete(ctx, on, namespace, l.notDeleted[i], *background.DeepCopy())
	})
	err := c.DeleteAll(ctx, on, namespace, background)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	if reachErr := v.Reach(ctx, 0); err == nil {
		err = reachErr
	}
	if err == nil {
		err = undecodableError(v, namespace)
	}
	return count(v, namespace, on), err
}

// undecodableError returns an error about stored objects that cannot be decoded; nil if there are none. They keep the namespace
// until an administrator deletes them.
func undecodableError(v client.View, namespace string) error {
	keys := v.Unreadable(namespace)
	if len(keys) == 0 {
		return nil
	}
	return fmt.Errorf("stored objects cannot be decoded: %s; delete them with ignoreStoreReadErrorWithClusterBreakingPotential", listKeys(keys))
}

// undecodableDefinitionsError returns an error about definitions of custom resources that cannot be decoded; nil if there are none. They
// keep every namespace, because it may contain objects of their resources, which are perhaps not served.
func undecodableDefinitionsError(c *control.Cluster) error {
	keys := c.View(gr.CustomResourceDefinitions).Unreadable("")
	if len(keys) == 0 {
		return nil
	}
	return fmt.Errorf("definitions of custom resources cannot be decoded, so that their objects may be overlooked: %s", listKeys(keys))
}

// listKeys formats keys for a message, which names the first ones only.
func listKeys(keys []string) string {
	const named = 3
	text := strings.Join(keys[:min(len(keys), named)], ", ")
	if more := len(keys) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// count counts the objects of one resource in a namespace.
func count(v client.View, namespace string, on schema.GroupResource) leftover {
	l := leftover{resource: on, finalizers: map[string]int{}}
	for o := range v.List(namespace) {
		l.add(o)
	}
	return l
}

func (l *leftover) add(o kind.Object) {
	l.objects++
	for _, f := range o.GetFinalizers() {
		l.finalizers[f]++
	}
	if o.GetDeletionTimestamp() == nil {
		l.notDeleted = append(l.notDeleted, o.GetName())
	}
}

// writeConditions writes the conditions of a namespace, if they have changed. While only numbers change, it writes them at intervals, and
// returns the time until the next write.
func (e *emptier) writeConditions(ctx context.Context, c *control.Cluster, ns *corev1.Namespace, r result) (time.Duration, error) {
	now := time.Now()
	conditions := describeConditions(r, ns.Status.Conditions, metav1.NewTime(now))
	if !haveChanged(conditions, ns.Status.Conditions) {
		return 0, nil
	}
	if wait := e.untilNextWrite(ns.Name, now); wait > 0 && differOnlyInNumbers(conditions, ns.Status.Conditions) {
		return wait, nil
	}
	ns.Status.Conditions = conditions
	updated, err := c.Update(ctx, gr.Namespaces, ns.DeepCopy(), "status")
	if err != nil {
		return 0, err
	}
	e.remember(ns.Name, func(s *progress) { s.wrote = now })
	*ns = *updated.(*corev1.Namespace)
	return 0, nil
}
