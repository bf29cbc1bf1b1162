// Package proxysync is what the controllers of the HTTP proxy, packages ingress and gateway, have in common. A Collector gathers the
// changes of the views that they read, so that many changes cost one new configuration. Pools keeps the endpoints of the backends.
// Certificates parses the Secrets that hold certificates. KeepPublished writes statuses, and retries with back-off while that fails.
package proxysync

import (
	"context"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
)

// Delay is how long a controller waits after it has configured the proxy, so that changes that come together are handled together.
const Delay = 20 * time.Millisecond

// Changes is what has changed in the cluster since the proxy was configured.
type Changes struct {
	// All means that the whole configuration is to be made again.
	All bool
	// Services, Secrets and ConfigMaps are the objects that have changed. Endpoints are the Services whose EndpointSlices have.
	Services, Secrets, ConfigMaps, Endpoints map[types.NamespacedName]bool
}

func noChanges() Changes {
	return Changes{
		Services: map[types.NamespacedName]bool{}, Secrets: map[types.NamespacedName]bool{},
		ConfigMaps: map[types.NamespacedName]bool{}, Endpoints: map[types.NamespacedName]bool{},
	}
}

// Collector gathers changes until the controller takes them. Make one with NewCollector.
type Collector struct {
	wake wait.Signal

	mu      sync.Mutex // guards pending
	pending Changes
}

// NewCollector returns a collector without changes.
func NewCollector() *Collector {
	return &Collector{wake: wait.NewSignal(), pending: noChanges()}
}

// Changed receives a value when there is something to take.
func (c *Collector) Changed() <-chan struct{} { return c.wake }

// Wake lets the controller look at its state again, even if nothing has changed in the cluster.
func (c *Collector) Wake() { c.wake.Send() }

// Note records a change and wakes the controller.
func (c *Collector) Note(record func(*Changes)) {
	c.mu.Lock()
	record(&c.pending)
	c.mu.Unlock()
	c.wake.Send()
}

// NoteAll requests that the whole configuration is made again.
func (c *Collector) NoteAll() { c.Note(func(all *Changes) { all.All = true }) }

// Take returns the changes that were noted since the last call.
func (c *Collector) Take() Changes {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.pending
	c.pending = noChanges()
	return taken
}

// Follow notes the events of a view until ctx ends. After a gap in the events everything counts as changed.
func (c *Collector) Follow(ctx context.Context, v client.View, record func(*Changes, client.Event)) {
	for e := range v.Events(ctx) {
		c.Note(func(pending *Changes) {
			if e.Gap {
				pending.All = true
			} else {
				record(pending, e)
			}
		})
	}
}

// NoteService records an event of a Service.
func NoteService(c *Changes, e client.Event) { c.Services[KeyOf(e.Object)] = true }

// NoteSecret records an event of a Secret.
func NoteSecret(c *Changes, e client.Event) { c.Secrets[KeyOf(e.Object)] = true }

// NoteConfigMap records an event of a ConfigMap.
func NoteConfigMap(c *Changes, e client.Event) { c.ConfigMaps[KeyOf(e.Object)] = true }

// NoteEndpoints records an event of an EndpointSlice.
func NoteEndpoints(c *Changes, e client.Event) {
	for _, o := range []kind.Object{e.Object, e.Old} { // an update may move the slice to another Service
		if o != nil {
			c.Endpoints[types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetLabels()[discoveryv1.LabelServiceName]}] = true
		}
	}
}

// KeyOf returns the namespace and name of an object.
func KeyOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Find returns an object of a view, or nil if there is none.
func Find[T kind.Object](v client.View, k types.NamespacedName) (none T) {
	o, ok := v.Get(k.Namespace, k.Name)
	if !ok {
		return none
	}
	t, _ := o.(T)
	return t
}

// Intersect reports whether two sets have a key in common.
func Intersect(a, b map[types.NamespacedName]bool) bool {
	for k := range a {
		if b[k] {
			return true
		}
	}
	return false
}
