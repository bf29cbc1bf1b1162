// Package garbagecollector deletes objects whose owners no longer exist. It keeps no graph: the dependents of an object are
// found by an index of the views, and its owners in the views of their kinds. Before an object is deleted, the absence of its
// owners is checked against the store.
//
// An owner can be deleted in three ways. With background deletion it is deleted at once, and its dependents afterwards. With
// foreground deletion it is kept, with a finalizer, until the dependents that block it are deleted. With orphan deletion it
// is kept, with another finalizer, until no dependent names it any more. The server adds the finalizers.
package garbagecollector

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
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Resource describes a resource that can be listed, watched and deleted.
type Resource struct {
	schema.GroupResource
	Kind       string
	Versions   []string // those that are served
	Namespaced bool
	Custom     bool // it can be added and removed while the server runs
}

// Resources returns the resources of some descriptors.
func Resources(defs func() []*kind.Def) func() []Resource {
	return func() (out []Resource) {
		at := map[schema.GroupResource]int{}
		all := defs()
		for _, d := range all {
			_, known := at[d.Resource()] // by another version of a custom resource
			if !known && d.Hub == nil && d.Serves("list") && d.Serves("watch") && d.Serves("delete") {
				at[d.Resource()] = len(out)
				out = append(out, Resource{GroupResource: d.Resource(), Kind: d.Kind, Namespaced: d.Scope == kind.Namespaced,
					Custom: d.IsCustom()})
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

// Occupancy tells which resources have objects. The collector needs no view of those that have none, which are most custom
// resources.
type Occupancy struct {
	// Has reports whether a resource may have objects. It is true from before the first of them is stored.
	Has func(schema.GroupResource) bool
	// Changed is signalled when a resource gets its first object.
	Changed <-chan struct{}
}

// Collector is the garbage collector.
type Collector struct {
	resources func() []Resource
	occupancy Occupancy
	table     atomic.Pointer[table]
	// deletedOwners has the UIDs of owners whose deletion was seen and whose dependents are still to be reconciled. It is needed when
	// the owner's kind is no longer served, so that the server cannot be asked.
	deletedOwners sync.Map
}

// table is an immutable list of resources, with an index by kind.
type table struct {
	all    []Resource
	byKind map[schema.GroupVersionKind]Resource
}

// New returns a collector; resources returns the resources that are served at the moment.
func New(resources func() []Resource) *Collector {
	g := &Collector{resources: resources}
	g.reload()
	return g
}

// With makes the collector open no views of custom resources that have no objects.
func (g *Collector) With(o Occupancy) *Collector {
	g.occupancy = o
	return g
}

// occupied reports whether a resource may have objects.
func (g *Collector) occupied(on Resource) bool {
	return !on.Custom || g.occupancy.Has == nil || g.occupancy.Has(on.GroupResource)
}

// reload updates the table of resources. It leaves out Events, which expire by themselves.
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

// Controller returns the controller. Its keys are objects of any resource, and namespaces, which stand for all objects in
// them.
func (g *Collector) Controller() control.Controller {
	ctl := control.Controller{
		Name: "generic-garbage-collector", Component: "garbage-collector-controller", For: gr.Namespaces, Outlines: true, Workers: 8,
		// whole namespaces are reconciled only after a gap, and for a new resource
		When:      func(_, _ kind.Object) bool { return false },
		Reads:     []schema.GroupResource{control.Any()},
		Writes:    []control.Write{{On: control.Any(), Do: "get update delete"}},
		Reconcile: g.reconcile,
		DynamicViews: &control.DynamicViews{Resources: g.custom, Trigger: g.trigger, WakeAll: true, Occupied: g.occupancy.Has,
			NewlyOccupied: g.occupancy.Changed},
	}
	for _, r := range g.reload().all {
		if !r.Custom {
			ctl.Triggers = append(ctl.Triggers, g.trigger(r.GroupResource))
		}
	}
	return ctl
}

// custom returns the custom resources.
func (g *Collector) custom(*control.Cluster) (out []schema.GroupResource) {
	for _, r := range g.reload().all {
		if r.Custom {
			out = append(out, r.GroupResource)
		}
	}
	return out
}

// trigger returns the trigger of a resource.
func (g *Collector) trigger(on schema.GroupResource) control.Trigger {
	return control.Trigger{
		On: on, When: isRelevantChange,
		Keys: func(c *control.Cluster, o kind.Object) iter.Seq[control.Key] { return g.keys(c, on, o) },
	}
}

// keyOf returns the key of an object of any resource.
func keyOf(on schema.GroupResource, namespace, name string, uid types.UID) control.Key {
	return control.Key{Namespace: namespace, Name: on.String() + "/" + name + "/" + string(uid)}
}

// parse is the inverse of keyOf. It returns false for the key of a namespace.
func parse(k control.Key) (on schema.GroupResource, name string, uid types.UID, ok bool) {
	parts := strings.Split(k.Name, "/")
	if len(parts) != 3 {
		return on, "", "", false
	}
	return schema.ParseGroupResource(parts[0]), parts[1], types.UID(parts[2]), true
}

// isRelevantChange ignores changes that concern neither owners nor deletion, which are nearly all.
func isRelevantChange(old, now kind.Object) bool {
	if old == nil || now == nil || old.GetUID() != now.GetUID() {
		return true
	}
	if (old.GetDeletionTimestamp() == nil) != (now.GetDeletionTimestamp() == nil) {
		return true
	}
	return !slices.EqualFunc(old.GetOwnerReferences(), now.GetOwnerReferences(), isSameRef) ||
		(now.GetDeletionTimestamp() != nil && !slices.Equal(old.GetFinalizers(), now.GetFinalizers()))
}

func isSameRef(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.Name == b.Name && a.Kind == b.Kind && a.APIVersion == b.APIVersion && isBlocking(a) == isBlocking(b)
}

func isBlocking(r metav1.OwnerReference) bool {
	return r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
}

// keys yields the keys to reconcile after a change of an object: the object itself, if it may be garbage, waits for its
// dependents, or was deleted and has some; and those of its owners that wait for it.
func (g *Collector) keys(c *control.Cluster, in schema.GroupResource, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		if g.mustReconcile(c, in, o) && !yield(keyOf(in, o.GetNamespace(), o.GetName(), o.GetUID())) {
			return
		}
		for _, ref := range o.GetOwnerReferences() {
			on, namespace, ok := g.locateOwner(o, ref)
			if !ok {
				continue
			}
			v := c.View(on.GroupResource)
			if v == nil {
				continue
			}
			owner, found := v.Get(namespace, ref.Name)
			if found && owner.GetUID() == ref.UID && waitsForDependents(owner) &&
				!yield(keyOf(on.GroupResource, namespace, ref.Name, ref.UID)) {
				return
			}
		}
	}
}

// mustReconcile reports whether an object itself has to be reconciled after it has changed.
func (g *Collector) mustReconcile(c *control.Cluster, in schema.GroupResource, o kind.Object) bool {
	var now kind.Object
	found := false
	if v := c.View(in); v != nil {
		now, found = v.Get(o.GetNamespace(), o.GetName())
	}
	switch {
	case !found || now.GetUID() != o.GetUID():
		if !g.hasDependents(c, o.GetUID()) {
			return false
		}
		g.deletedOwners.Store(o.GetUID(), true)
		return true
	case o.GetDeletionTimestamp() != nil:
		return waitsForDependents(o) || orphansDependents(o)
	}
	return g.mayBeGarbage(c, o)
}

// mayBeGarbage reports whether, by the views, an owner of an object does not exist or waits for the object to be deleted.
func (g *Collector) mayBeGarbage(c *control.Cluster, o kind.Object) bool {
	for _, ref := range o.GetOwnerReferences() {
		on, namespace, ok := g.locateOwner(o, ref)
		if !ok {
			if on.Namespaced {
				return true // an object without a namespace cannot have an owner in one
			}
			continue
		}
		v := c.View(on.GroupResource)
		if v == nil {
			return true
		}
		owner, found := v.Get(namespace, ref.Name)
		if !found || owner.GetUID() != ref.UID || waitsForDependents(owner) {
			return true
		}
	}
	return false
}

// locateOwner returns the resource and namespace in which the owner of an object must be. It returns false when the owner's kind is
// not known, or when an object without a namespace names a namespaced owner.
func (g *Collector) locateOwner(o kind.Object, ref metav1.OwnerReference) (on Resource, namespace string, ok bool) {
	on, ok = g.table.Load().byKind[schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)]
	if !ok {
		return on, "", false
	}
	if on.Namespaced {
		return on, o.GetNamespace(), o.GetNamespace() != ""
	}
	return on, "", true
}

// dependents returns the objects that name an owner.
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

func (g *Collector) hasDependents(c *control.Cluster, uid types.UID) bool {
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
	l := &reconciler{g: g, c: c, absent: map[string]bool{}, inOtherNamespace: map[types.UID]bool{}}
	on, name, uid, ok := parse(k)
	if !ok {
		return 0, l.reconcileNamespace(ctx, k.Name)
	}
	var o kind.Object
	found := false
	if v := c.View(on); v != nil {
		o, found = v.Get(k.Namespace, name)
	}
	if !found || o.GetUID() != uid {
		err := l.forEach(ctx, g.dependents(c, uid), l.reconcileDependent)
		if err == nil {
			g.deletedOwners.Delete(uid)
		}
		return 0, err
	}
	at := slices.IndexFunc(g.table.Load().all, func(r Resource) bool { return r.GroupResource == on })
	if at < 0 {
		return 0, nil
	}
	return 0, l.reconcileObject(ctx, item{g.table.Load().all[at], o})
}
