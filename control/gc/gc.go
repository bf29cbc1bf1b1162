// Package gc deletes objects whose owners are gone. It keeps no graph of its own: what an object owns is an index of the
// views, and whether an owner exists is a look into the view of the owner's kind. Before anything is deleted, the absence of
// its owners is checked against the store.
//
// An owner may be deleted in three ways. In the background it is simply gone, and its dependents follow. In the foreground
// it stays, with a finalizer, until the dependents that block it are gone. As an orphan's parent it stays until no
// dependent names it any more. The finalizers are put there by the server when the owner is deleted.
package gc

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Resource is what the collector must know of a resource that can be listed, watched and deleted.
type Resource struct {
	schema.GroupResource
	Kind       string
	Versions   []string // those that are served
	Namespaced bool
	Custom     bool // it may go, and come again
}

// Resources are those of some descriptors, as the collector must know them.
func Resources(defs func() []*kind.Def) func() []Resource {
	return func() (out []Resource) {
		at := map[schema.GroupResource]int{}
		all := defs()
		for _, d := range all {
			_, known := at[d.Resource()] // as another version of a custom resource
			if !known && d.Hub == nil && d.Allows("list") && d.Allows("watch") && d.Allows("delete") {
				at[d.Resource()] = len(out)
				out = append(out, Resource{GroupResource: d.Resource(), Kind: d.Kind, Namespaced: d.Scope == kind.Namespaced, Custom: d.IsCustom()})
			}
		}
		for _, d := range all {
			if i, ok := at[d.Storage().Resource()]; ok && d.Group == out[i].Group {
				out[i].Versions = append(out[i].Versions, d.Version)
			}
		}
		return out
	}
}

// Occupancy tells which resources have objects. Of those that have none the collector needs no view, and most definitions are such.
type Occupancy struct {
	// Has says that a resource may have objects. It is true from before the first of them is stored.
	Has func(schema.GroupResource) bool
	// Changed is signalled when that becomes true of a resource.
	Changed <-chan struct{}
}

// Collector is the garbage collector.
type Collector struct {
	resources func() []Resource
	occupancy Occupancy
	table     atomic.Pointer[table]
	// gone are the UIDs of owners that were seen to be deleted and whose dependents are still to be judged: their kind may be gone then,
	// and nobody else could tell.
	gone sync.Map
}

// table finds resources. It is immutable.
type table struct {
	all    []Resource
	byKind map[schema.GroupVersionKind]Resource
}

// New makes a collector over the resources that there are at any time.
func New(resources func() []Resource) *Collector {
	g := &Collector{resources: resources}
	g.reload()
	return g
}

// With has the collector leave alone the custom resources that have no objects.
func (g *Collector) With(o Occupancy) *Collector {
	g.occupancy = o
	return g
}

// occupied says that a resource may have objects.
func (g *Collector) occupied(on Resource) bool {
	return !on.Custom || g.occupancy.Has == nil || g.occupancy.Has(on.GroupResource)
}

// reload reads which resources there are, without Events: they go by themselves.
func (g *Collector) reload() *table {
	t := &table{byKind: map[schema.GroupVersionKind]Resource{}}
	for _, r := range g.resources() {
		if r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io") {
			continue
		}
		t.all = append(t.all, r)
		for _, v := range r.Versions {
			t.byKind[schema.GroupVersionKind{Group: r.Group, Version: v, Kind: r.Kind}] = r
		}
	}
	g.table.Store(t)
	return t
}

// Controller returns the loop. Its keys are objects of any resource, and namespaces, which stand for all that is in them.
func (g *Collector) Controller() control.Controller {
	ctl := control.Controller{
		Name: "generic-garbage-collector", Component: "garbage-collector-controller", For: gr.Namespaces, Outlines: true, Workers: 8,
		When:      func(_, _ kind.Object) bool { return false }, // namespaces are looked at as a whole only after a gap, and for a new kind of owners
		Reads:     []schema.GroupResource{control.Any()},
		Writes:    []control.Write{{On: control.Any(), Do: "get update delete"}},
		Reconcile: g.reconcile,
		Follow:    &control.Follow{Resources: g.custom, Trigger: g.trigger, WakeAll: true, Occupied: g.occupancy.Has, NewlyOccupied: g.occupancy.Changed},
	}
	for _, r := range g.reload().all {
		if !r.Custom {
			ctl.Triggers = append(ctl.Triggers, g.trigger(r.GroupResource))
		}
	}
	return ctl
}

// custom lists the custom resources.
func (g *Collector) custom(*control.Cluster) (out []schema.GroupResource) {
	for _, r := range g.reload().all {
		if r.Custom {
			out = append(out, r.GroupResource)
		}
	}
	return out
}

// trigger wakes the keys that changes of a resource concern.
func (g *Collector) trigger(on schema.GroupResource) control.Trigger {
	return control.Trigger{
		On: on, When: matters,
		Keys: func(c *control.Cluster, o kind.Object) iter.Seq[control.Key] { return g.keys(c, on, o) },
	}
}

// keyOf names an object of any resource.
func keyOf(on schema.GroupResource, namespace, name string, uid types.UID) control.Key {
	return control.Key{Namespace: namespace, Name: on.String() + "/" + name + "/" + string(uid)}
}

// parse is the opposite of keyOf. It fails for the key of a namespace.
func parse(k control.Key) (on schema.GroupResource, name string, uid types.UID, ok bool) {
	parts := strings.Split(k.Name, "/")
	if len(parts) != 3 {
		return on, "", "", false
	}
	return schema.ParseGroupResource(parts[0]), parts[1], types.UID(parts[2]), true
}

// matters leaves out changes that have nothing to do with owners: nearly all.
func matters(old, now kind.Object) bool {
	if old == nil || now == nil || old.GetUID() != now.GetUID() {
		return true
	}
	if (old.GetDeletionTimestamp() == nil) != (now.GetDeletionTimestamp() == nil) {
		return true
	}
	return !slices.EqualFunc(old.GetOwnerReferences(), now.GetOwnerReferences(), sameRef) ||
		(now.GetDeletionTimestamp() != nil && !slices.Equal(old.GetFinalizers(), now.GetFinalizers()))
}

func sameRef(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.Name == b.Name && a.Kind == b.Kind && a.APIVersion == b.APIVersion && blocks(a) == blocks(b)
}

func blocks(r metav1.OwnerReference) bool {
	return r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
}

// keys are those that a change of an object makes worth a look: the object, if it may be garbage, or is waiting for its
// dependents, or is gone and has some; and those of its owners that wait for it.
func (g *Collector) keys(c *control.Cluster, in schema.GroupResource, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		if g.worth(c, in, o) && !yield(keyOf(in, o.GetNamespace(), o.GetName(), o.GetUID())) {
			return
		}
		for _, ref := range o.GetOwnerReferences() {
			on, namespace, ok := g.find(o, ref)
			if !ok {
				continue
			}
			v := c.View(on.GroupResource)
			if v == nil {
				continue
			}
			owner, found := v.Get(namespace, ref.Name)
			if found && owner.GetUID() == ref.UID && waits(owner) && !yield(keyOf(on.GroupResource, namespace, ref.Name, ref.UID)) {
				return
			}
		}
	}
}

func (g *Collector) worth(c *control.Cluster, in schema.GroupResource, o kind.Object) bool {
	var now kind.Object
	found := false
	if v := c.View(in); v != nil {
		now, found = v.Get(o.GetNamespace(), o.GetName())
	}
	switch {
	case !found || now.GetUID() != o.GetUID():
		if !g.owns(c, o.GetUID()) {
			return false
		}
		g.gone.Store(o.GetUID(), true)
		return true
	case o.GetDeletionTimestamp() != nil:
		return waits(o) || orphans(o)
	}
	return g.suspect(c, o)
}

// suspect says that an owner of an object is not there, or waits for the object to go, as far as the views know.
func (g *Collector) suspect(c *control.Cluster, o kind.Object) bool {
	for _, ref := range o.GetOwnerReferences() {
		on, namespace, ok := g.find(o, ref)
		if !ok {
			if on.Namespaced {
				return true // a reference that cannot be right
			}
			continue
		}
		v := c.View(on.GroupResource)
		if v == nil {
			return true
		}
		owner, found := v.Get(namespace, ref.Name)
		if !found || owner.GetUID() != ref.UID || waits(owner) {
			return true
		}
	}
	return false
}

// find is where the owner that a reference of an object names should be. It is not found when nobody knows its kind, or when
// an object of the whole cluster names one that lives in a namespace.
func (g *Collector) find(o kind.Object, ref metav1.OwnerReference) (on Resource, namespace string, ok bool) {
	on, ok = g.table.Load().byKind[schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)]
	if !ok {
		return on, "", false
	}
	if on.Namespaced {
		return on, o.GetNamespace(), o.GetNamespace() != ""
	}
	return on, "", true
}

// dependents are the objects that name an owner.
func (g *Collector) dependents(c *control.Cluster, uid types.UID) (out []item) {
	for _, r := range g.table.Load().all {
		if v := c.View(r.GroupResource); v != nil {
			for o := range v.By(client.ByOwner(), string(uid)) {
				out = append(out, item{r, o})
			}
		}
	}
	return out
}

func (g *Collector) owns(c *control.Cluster, uid types.UID) bool {
	for _, r := range g.table.Load().all {
		if v := c.View(r.GroupResource); v != nil {
			for range v.By(client.ByOwner(), string(uid)) {
				return true
			}
		}
	}
	return false
}

func (g *Collector) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	l := &look{g: g, c: c, absent: map[string]bool{}, told: map[types.UID]bool{}}
	on, name, uid, ok := parse(k)
	if !ok {
		return 0, l.namespace(ctx, k.Name)
	}
	var o kind.Object
	found := false
	if v := c.View(on); v != nil {
		o, found = v.Get(k.Namespace, name)
	}
	if !found || o.GetUID() != uid {
		err := l.each(ctx, g.dependents(c, uid), l.judge)
		if err == nil {
			g.gone.Delete(uid)
		}
		return 0, err
	}
	at := slices.IndexFunc(g.table.Load().all, func(r Resource) bool { return r.GroupResource == on })
	if at < 0 {
		return 0, nil
	}
	return 0, l.one(ctx, item{g.table.Load().all[at], o})
}
