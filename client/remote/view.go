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
	"proa.dev/kinds/kind"
)

// view is a copy of some objects of a resource, kept up by a watch.
type view struct {
	client *Client
	def    *kind.Def
	scope  client.Scope
	// refused says that the watch is forbidden; only follow uses it.
	refused bool

	mu      sync.Mutex // guards what follows
	objects *btree.BTreeG[entry]
	indexes map[string]*lookup
	rev     int64 // the view holds every change up to here
	readers map[*reader]bool
	moved   chan struct{} // closed at the next change; nil when nobody waits
}

type entry struct {
	key    string
	object kind.Object
}

// maxWaiting is how many events may wait for a reader before they are dropped, and the reader told of a gap.
const maxWaiting = 10000

// reader is somebody who follows the events.
type reader struct {
	queue []client.Event
	gap   bool
	ready chan struct{}
}

func newView(c *Client, def *kind.Def, scope client.Scope) *view {
	return &view{
		client: c, def: def, scope: scope, indexes: map[string]*lookup{}, readers: map[*reader]bool{},
		objects: btree.NewG(16, func(a, b entry) bool { return a.key < b.key }),
	}
}

// selection is the scope as a request has it.
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

// keyOf sorts as the store's keys do.
func keyOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

func revOf(o kind.Object) int64 {
	rev, _ := strconv.ParseInt(o.GetResourceVersion(), 10, 64) // the server says nothing else
	return rev
}

// Get finds an object.
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

// By yields what an index finds.
func (v *view) By(index client.Index, value string) iter.Seq[kind.Object] {
	v.mu.Lock()
	defer v.mu.Unlock()
	l := v.indexes[index.Name]
	if l == nil {
		l = &lookup{of: index.Of, keys: map[string]map[string]bool{}}
		v.objects.Ascend(func(e entry) bool { l.add(e); return true })
		v.indexes[index.Name] = l
	}
	var out []kind.Object
	keys := make([]string, 0, len(l.keys[value]))
	for k := range l.keys[value] {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		e, _ := v.objects.Get(entry{key: k})
		out = append(out, e.object)
	}
	return slices.Values(out)
}

// lookup finds keys by value.
type lookup struct {
	of   func(kind.Object) []string
	keys map[string]map[string]bool
}

func (l *lookup) add(e entry) {
	for _, value := range l.of(e.object) {
		if l.keys[value] == nil {
			l.keys[value] = map[string]bool{}
		}
		l.keys[value][e.key] = true
	}
}

func (l *lookup) remove(e entry) {
	for _, value := range l.of(e.object) {
		if delete(l.keys[value], e.key); len(l.keys[value]) == 0 {
			delete(l.keys, value)
		}
	}
}

// apply takes over an event of the watch.
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
	e := entry{keyOf(ev.object.GetNamespace(), ev.object.GetName()), ev.object}
	old, had := v.objects.Get(e)
	for _, l := range v.indexes {
		if had {
			l.remove(old)
		}
		if ev.kind != "DELETED" {
			l.add(e)
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

// replace takes over a whole new state. Whoever follows is told of a gap.
func (v *view) replace(items []kind.Object, rev int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.objects.Clear(false)
	for _, l := range v.indexes {
		clear(l.keys)
	}
	for _, o := range items {
		e := entry{keyOf(o.GetNamespace(), o.GetName()), o}
		v.objects.ReplaceOrInsert(e)
		for _, l := range v.indexes {
			l.add(e)
		}
	}
	v.rev = rev
	for r := range v.readers {
		r.lose()
	}
	v.wake()
}

// wake lets those look again who wait for a revision.
func (v *view) wake() {
	if v.moved != nil {
		close(v.moved)
		v.moved = nil
	}
}

func (r *reader) push(ev client.Event) {
	if r.gap {
		return
	}
	if len(r.queue) >= maxWaiting {
		r.lose()
		return
	}
	r.queue = append(r.queue, ev)
	r.ring()
}

// lose forgets what waits: the present state takes its place.
func (r *reader) lose() {
	r.queue, r.gap = nil, true
	r.ring()
}

func (r *reader) ring() {
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// Events yields the present and then the changes.
func (v *view) Events(ctx context.Context) iter.Seq[client.Event] {
	return func(yield func(client.Event) bool) {
		r := &reader{ready: make(chan struct{}, 1)}
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

// take is what a reader has not seen yet.
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

// present is the state as events.
func (v *view) present() []client.Event {
	all := v.all()
	out := make([]client.Event, len(all))
	for i, o := range all {
		out[i] = client.Event{Object: o, Rev: revOf(o)}
	}
	return out
}
