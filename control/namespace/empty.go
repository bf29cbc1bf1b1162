package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// left is what remains of one resource in a namespace.
type left struct {
	resource   schema.GroupResource
	objects    int
	untouched  []string // the names of those that are not yet being deleted
	finalizers map[string]int
}

// result is what a look has found: what remains, what went wrong, and the group versions that nobody knows the resources of.
type result struct {
	remains  []left
	failures []error
	unknown  []schema.GroupVersion
}

// absence is how often a namespace is looked at that waits for an API server to come back.
const absence = 5 * time.Second

// hands is how many resources are emptied at a time, and how many objects of each are deleted at a time. A store takes many
// writes at once about as fast as one.
const hands = 16

// each does something to many things at once.
func each[T any](things []T, do func(T)) {
	var wg sync.WaitGroup
	seats := make(chan struct{}, hands)
	for _, x := range things {
		seats <- struct{}{}
		wg.Go(func() {
			defer func() { <-seats }()
			do(x)
		})
	}
	wg.Wait()
}

// empty deletes what is in a namespace, says what is left, and lets the namespace go when that is nothing.
func (e *emptier) empty(ctx context.Context, c *control.Cluster, ns *corev1.Namespace) (time.Duration, error) {
	var unknown []schema.GroupVersion
	if e.Undiscovered != nil {
		unknown = e.Undiscovered()
	}
	resources := slices.Concat(e.Resources, e.Custom())
	others := slices.DeleteFunc(slices.Clone(resources), func(r schema.GroupResource) bool { return r == gr.Pods })
	var remains []left
	var failures []error
	// Pods go first: what protects or limits them must not vanish while they run.
	if len(others) < len(resources) {
		remains, failures = e.sweep(ctx, c, ns.Name, []schema.GroupResource{gr.Pods}, false)
	}
	if len(remains) == 0 && len(failures) == 0 {
		remains, failures = e.sweep(ctx, c, ns.Name, others, false)
	}
	// Nothing may be overlooked, for the namespace goes when nothing is left.
	if len(remains) == 0 && len(failures) == 0 {
		remains, failures = e.sweep(ctx, c, ns.Name, resources, true)
	}
	e.remember(ns.Name, func(s *seen) {
		s.looked, s.left = time.Now(), 0
		for _, l := range remains {
			s.left += l.objects
		}
	})
	again, err := e.tell(ctx, c, ns, result{remains, failures, unknown})
	if err != nil {
		return 0, control.Gone(err)
	}
	if len(failures) > 0 {
		return 0, errors.Join(failures...)
	}
	if len(remains) > 0 {
		if slices.ContainsFunc(remains, func(l left) bool { return c.View(l.resource) == nil }) {
			again = pace // nothing tells the loop of objects of a kind that came after its start
		}
		return again, nil
	}
	if len(unknown) > 0 {
		return absence, nil
	}
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	_, err = c.Update(ctx, gr.Namespaces, ns, "finalize")
	return 0, control.Gone(err)
}

// sweep deletes the objects of some resources, and returns what remains. fresh makes sure that the views show everything.
func (e *emptier) sweep(ctx context.Context, c *control.Cluster, namespace string, resources []schema.GroupResource, fresh bool) (remains []left, failures []error) {
	var mu sync.Mutex
	each(resources, func(on schema.GroupResource) {
		l, err := e.sweepOne(ctx, c, namespace, on, fresh)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failures = append(failures, err)
		}
		if l.objects > 0 {
			remains = append(remains, l)
		}
	})
	return remains, failures
}

func (e *emptier) sweepOne(ctx context.Context, c *control.Cluster, namespace string, on schema.GroupResource, fresh bool) (left, error) {
	v := c.View(on)
	if v == nil {
		var err error
		if v, err = e.Open(ctx, on); err != nil {
			if !slices.Contains(e.Custom(), on) {
				err = nil // its definition is gone, and with it all objects
			}
			return left{}, err
		}
	}
	if fresh {
		if err := v.Reach(ctx, 0); err != nil {
			return left{}, err
		}
	}
	l := count(v, namespace, on)
	if len(l.untouched) == 0 {
		return l, undecodable(v, namespace) // all others are on their way
	}
	background := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	each(l.untouched, func(name string) {
		_ = c.Delete(ctx, on, namespace, name, *background.DeepCopy()) // what fails is tried again, and its error told, below
	})
	err := c.DeleteAll(ctx, on, namespace, background)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	if reach := v.Reach(ctx, 0); err == nil {
		err = reach
	}
	if err == nil {
		err = undecodable(v, namespace)
	}
	return count(v, namespace, on), err
}

// undecodable is the error of objects that nobody can read and that hold the namespace until they are deleted by somebody who knows what
// they were.
func undecodable(v client.View, namespace string) error {
	keys := v.Unreadable(namespace)
	if len(keys) == 0 {
		return nil
	}
	const named = 3
	text := strings.Join(keys[:min(len(keys), named)], ", ")
	if more := len(keys) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("stored objects cannot be decoded: %s; delete them with ignoreStoreReadErrorWithClusterBreakingPotential", text)
}

// count looks at the objects of one resource in a namespace.
func count(v client.View, namespace string, on schema.GroupResource) left {
	l := left{resource: on, finalizers: map[string]int{}}
	for o := range v.List(namespace) {
		l.add(o)
	}
	return l
}

func (l *left) add(o kind.Object) {
	l.objects++
	for _, f := range o.GetFinalizers() {
		l.finalizers[f]++
	}
	if o.GetDeletionTimestamp() == nil {
		l.untouched = append(l.untouched, o.GetName())
	}
}

// tell writes the conditions of a namespace, if they have changed. While only numbers change it does so now and then, and
// says when to come again.
func (e *emptier) tell(ctx context.Context, c *control.Cluster, ns *corev1.Namespace, r result) (time.Duration, error) {
	now := time.Now()
	conditions := describe(r, ns.Status.Conditions, metav1.NewTime(now))
	if !changed(conditions, ns.Status.Conditions) {
		return 0, nil
	}
	if wait := e.early(ns.Name, now); wait > 0 && onlyNumbers(conditions, ns.Status.Conditions) {
		return wait, nil
	}
	ns.Status.Conditions = conditions
	updated, err := c.Update(ctx, gr.Namespaces, ns.DeepCopy(), "status")
	if err != nil {
		return 0, err
	}
	e.remember(ns.Name, func(s *seen) { s.wrote = now })
	*ns = *updated.(*corev1.Namespace)
	return 0, nil
}
