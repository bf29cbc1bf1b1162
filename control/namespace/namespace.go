// Package namespace deletes the objects in namespaces that are being deleted, Pods first, and removes the finalizer of a
// namespace when nothing is left. It is woken by the changes of objects, and does not poll.
package namespace

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Config lists the resources of the server.
type Config struct {
	// Resources are the built-in namespaced resources that can be deleted. The controller always has views of them.
	Resources []schema.GroupResource
	// Custom returns the namespaced custom resources. A view of one is opened when a namespace is deleted, and read
	// repeatedly while objects remain.
	Custom func() []schema.GroupResource
	Open   func(context.Context, schema.GroupResource) (client.View, error)
	// Undiscovered, if not nil, returns the group versions whose API servers do not answer. A namespace is kept, because it may
	// contain objects of their resources.
	Undiscovered func() []schema.GroupVersion
}

// Controller returns the controller.
func Controller(config Config) control.Controller {
	e := &emptier{Config: config, progress: map[string]progress{}}
	ctl := control.Controller{
		Name: "namespace-controller", For: gr.Namespaces, Workers: 10,
		Reads: []schema.GroupResource{control.Any(), gr.CustomResourceDefinitions},
		When:  func(_, now kind.Object) bool { return now == nil || now.GetDeletionTimestamp() != nil },
		Writes: []control.Write{
			{On: gr.Namespaces, Do: "update/status update/finalize"}, {On: control.Any(), Do: "delete deletecollection"},
		},
		Reconcile: e.reconcile,
	}
	for _, on := range config.Resources {
		ctl.Triggers = append(ctl.Triggers, control.Trigger{On: on, When: isRelevantChange, Keys: terminatingNamespace})
	}
	return ctl
}

// isRelevantChange accepts the creation and deletion of objects, and changes of the finalizers of objects that are being deleted.
func isRelevantChange(old, now kind.Object) bool {
	return old == nil || now == nil || (now.GetDeletionTimestamp() != nil && !slices.Equal(old.GetFinalizers(), now.GetFinalizers()))
}

// terminatingNamespace yields the namespace of an object, if it is being deleted.
func terminatingNamespace(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		if ns, found := c.View(gr.Namespaces).Get("", o.GetNamespace()); found && ns.GetDeletionTimestamp() != nil {
			yield(control.KeyOf(ns))
		}
	}
}

// emptier is the state of the controller.
type emptier struct {
	Config

	mu       sync.Mutex // guards progress
	progress map[string]progress
}

// progress is what is remembered of a namespace while it is being emptied, to limit the work.
type progress struct {
	wrote      time.Time // when its conditions were last written
	reconciled time.Time // when it was last reconciled
	left       int       // how many objects there were then
}

const (
	// writeInterval is the interval at which the numbers in the conditions of a namespace are written.
	writeInterval = time.Second
	// perObject delays the next reconcile for each remaining object: every deletion of an object wakes the key, and a reconcile
	// counts all remaining ones.
	perObject = 20 * time.Microsecond
)

// untilNextWrite returns the time until the conditions of a namespace may be written again.
func (e *emptier) untilNextWrite(name string, now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return timeLeft(e.progress[name].wrote, writeInterval, now)
}

// untilNextReconcile returns the time until a namespace may be reconciled again.
func (e *emptier) untilNextReconcile(name string, now time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.progress[name]
	return timeLeft(s.reconciled, min(time.Duration(s.left)*perObject, writeInterval), now)
}

// timeLeft returns what is left of a duration that began at a time; 0 if the clock was set back since.
func timeLeft(began time.Time, d time.Duration, now time.Time) time.Duration {
	if began.After(now) {
		return 0
	}
	return max(0, began.Add(d).Sub(now))
}

func (e *emptier) remember(name string, change func(*progress)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.progress[name]
	change(&s)
	e.progress[name] = s
}

func (e *emptier) forget(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.progress, name)
}

func (e *emptier) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	ns, found := control.Get[*corev1.Namespace](c, gr.Namespaces, "", k.Name)
	if !found || ns.DeletionTimestamp == nil {
		e.forget(k.Name)
		return 0, nil
	}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return 0, nil
	}
	if wait := e.untilNextReconcile(k.Name, time.Now()); wait > 0 {
		return wait, nil
	}
	return e.empty(ctx, c, ns.DeepCopy())
}
