package remote

import (
	"context"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/btree"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
)

// view is a cache of some objects of a resource, kept up to date by a watch.
type view struct {
	client *Client
	def    *kind.Def
	scope  client.Scope
	// refused reports that the watch is forbidden; only follow uses it.
	refused bool

	mu      sync.Mutex // guards what follows
	objects *btree.BTreeG[entry]
	indexes map[string]*index
	rev     int64 // the view contains every change up to this revision
	readers map[*reader]bool
	changed chan struct{} // closed at the next change; nil when nobody waits
}

type entry struct {
	key    string
	object kind.Object
}

// maxQueued is how many events are queued for a reader. Beyond that they are dropped, and the reader gets a gap.
const maxQueued = 10000

// reader is a call of Events.
type reader struct {
	queue []client.Event
	gap   bool
	ready wait.Signal
}

func newView(c *Client, def *kind.Def, scope client.Scope) *view {
	return &view{
		client: c, def: def, scope: scope, indexes: map[string]*index{}, readers: map[*reader]bool{},
		objects: btree.NewG(16, func(a, b entry) bool { return a.key < b.key }),
	}
}

// selection returns the scope as the namespace and the query of a request.
func (v *view) selection() (namespace string, q url.Values) {
	q = url.Values{}
	switch {
	case v.scope.Node != "":
		q.Set("fieldSelector", "spec.nodeName="+v.scope.Node)
	case v.scope.Name != "":
		q.Set("fieldSelector", "metadata.name="+v.scope.Name)
	}
	return v.scope.Namespace, q
}

// keyOf returns a key that sorts as the keys of the store do.
func keyOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

func revOf(o kind.Object) int64 {
	rev, _ := strconv.ParseInt(o.GetResourceVersion(), 10, 64) // the server sends nothing else
	return rev
}

// outline returns an object as the view keeps it: without its large parts, where its kind has an outline. The client of another process
// reads few such kinds, and never writes them.
func (v *view) outline(o kind.Object) kind.Object {
	if v.def.Outline == nil {
		return o
	}
	return v.def.Outline(o)
}

// Get returns an object of the view.
func (v *view) Get(namespace, name string) (kind.Object, bool) {
	if v.def.Scope == kind.Cluster {
		namespace = ""
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	e, found := v.objects.Get(entry{key: keyOf(namespace, name)})
	return e.object, found
}

// List yields the objects of a namespace, or all.
func (v *view) List(namespace string) iter.Seq[kind.Object] {
	v.mu.Lock()
	defer v.mu.Unlock()
	if namespace == "" || v.def.Scope == kind.Cluster {
		return slices.Values(v.all())
	}
	var out []kind.Object
	prefix := namespace + "/"
	v.objects.AscendGreaterOrEqual(entry{key: prefix}, func(e entry) bool {
		if !strings.HasPrefix(e.key, prefix) {
			return false
		}
		out = append(out, e.object)
		return true
	})
	return slices.Values(out)
}

func (v *view) all() []kind.Object {
	out := make([]kind.Object, 0, v.objects.Len())
	v.objects.Ascend(func(e entry) bool { out = append(out, e.object); return true })
	return out
}

// By yields the objects that have a value in an index.
func (v *view) By(by client.Index, value string) iter.Seq[kind.Object] {
	v.mu.Lock()
	defer v.mu.Unlock()
	x := v.indexes[by.Name]
	if x == nil {
		x = &index{of: by.Values, keys: map[string]map[string]bool{}}
		v.objects.Ascend(func(e entry) bool { x.add(e); return true })
		v.indexes[by.Name] = x
	}
	var out []kind.Object
	keys := make([]string, 0, len(x.keys[value]))
	for k := range x.keys[value] {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		e, _ := v.objects.Get(entry{key: k})
		out = append(out, e.object)
	}
	return slices.Values(out)
}

// index finds keys of objects by a value.
type index struct {
	of   func(kind.Object) []string
	keys map[string]map[string]bool
}

func (x *index) add(e entry) {
	for _, value := range x.of(e.object) {
		if x.keys[value] == nil {
			x.keys[value] = map[string]bool{}
		}
		x.keys[value][e.key] = true
	}
}

func (x *index) remove(e entry) {
	for _, value := range x.of(e.object) {
		if delete(x.keys[value], e.key); len(x.keys[value]) == 0 {
			delete(x.keys, value)
		}
	}
}

// apply applies an event of the watch.
func (v *view) apply(ev event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if ev.rev > v.rev {
		v.rev = ev.rev
	}
	if ev.kind == "BOOKMARK" {
		v.wake()
		return
	}
	ev.object = v.outline(ev.object)
	e := entry{keyOf(ev.object.GetNamespace(), ev.object.GetName()), ev.object}
	old, had := v.objects.Get(e)
	for _, x := range v.indexes {
		if had {
			x.remove(old)
		}
		if ev.kind != "DELETED" {
			x.add(e)
		}
	}
	out := client.Event{Object: ev.object, Rev: ev.rev, Deleted: ev.kind == "DELETED"}
	if had {
		out.Old = old.object
	}
	if out.Deleted {
		v.objects.Delete(e)
	} else {
		v.objects.ReplaceOrInsert(e)
	}
	if !out.Deleted || had {
		for r := range v.readers {
			r.push(out)
		}
	}
	v.wake()
}

// replace replaces all objects. Readers get a gap.
func (v *view) replace(items []kind.Object, rev int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.objects.Clear(false)
	for _, x := range v.indexes {
		clear(x.keys)
	}
	for _, o := range items {
		e := entry{keyOf(o.GetNamespace(), o.GetName()), v.outline(o)}
		v.objects.ReplaceOrInsert(e)
		for _, x := range v.indexes {
			x.add(e)
		}
	}
	v.rev = rev
	for r := range v.readers {
		r.setGap()
	}
	v.wake()
}

// wake wakes those who wait for a revision.
func (v *view) wake() {
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}

func (r *reader) push(ev client.Event) {
	if r.gap {
		return
	}
	if len(r.queue) >= maxQueued {
		r.setGap()
		return
	}
	r.queue = append(r.queue, ev)
	r.ready.Send()
}

// setGap drops the queued events; the reader gets a gap and the present objects instead.
func (r *reader) setGap() {
	r.queue, r.gap = nil, true
	r.ready.Send()
}

// Events yields the present objects and then the changes, until ctx ends.
func (v *view) Events(ctx context.Context) iter.Seq[client.Event] {
	return func(yield func(client.Event) bool) {
		r := &reader{ready: wait.NewSignal()}
		v.mu.Lock()
		v.readers[r] = true
		next := v.present()
		v.mu.Unlock()
		defer func() {
			v.mu.Lock()
			defer v.mu.Unlock()
			delete(v.readers, r)
		}()
		for {
			for _, ev := range next {
				if ctx.Err() != nil || !yield(ev) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-r.ready:
			}
			next = v.take(r)
		}
	}
}

// take returns the events that a reader has not seen yet.
func (v *view) take(r *reader) (out []client.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r.gap {
		out = append([]client.Event{{Gap: true, Rev: v.rev}}, v.present()...)
	} else {
		out = r.queue
	}
	r.queue, r.gap = nil, false
	return out
}

// present returns the objects of the view as events.
func (v *view) present() []client.Event {
	all := v.all()
	out := make([]client.Event, len(all))
	for i, o := range all {
		out[i] = client.Event{Object: o, Rev: revOf(o)}
	}
	return out
}
