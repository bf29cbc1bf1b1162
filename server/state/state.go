// Package state holds the cluster's objects in this process: a cache for each stored resource, the table of built-in
// and custom resources, and the views by which authentication, authorization and admission read them. The pipeline
// serves from it.
package state

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kv"
	"proa.dev/server/apistatus"
	"proa.dev/server/customresource"
	"proa.dev/watch"
)

// Store is hop 7 as the pipeline needs it.
type Store interface {
	kv.Reader
	kv.Watcher
	kv.Committer
}

// State is the one copy of the cluster's objects in this process: a cache for each stored resource, which starts on
// first use. It is made before the pipeline, because authentication and authorization read it too.
type State struct {
	Codec *codec.Codec
	Store Store
	// SoleWriter says that no other process writes to the store. It is set before the State is used.
	SoleWriter bool
	log        *slog.Logger

	ctx  context.Context // the life of the caches; State owns their goroutines
	stop context.CancelFunc
	wg   sync.WaitGroup

	defs            atomic.Pointer[table]
	mu              sync.Mutex // guards caches and occupied, and that no cache begins to run after the end
	caches          map[string]*runningCache
	customResources customResources
	bytes           namespaceBytes
	// occupied tells which custom resources may have objects, by their place in the store, as far as that is known; see
	// Occupied.
	occupied      map[string]bool
	newlyOccupied wait.Signal
}

// runningCache is a cache and the function that ends it.
type runningCache struct {
	*watch.Cache
	stop context.CancelFunc
}

// table finds descriptors. It is immutable; a change of custom resources replaces it.
type table struct {
	all       []*kind.Def
	byVersion map[schema.GroupVersionResource]*kind.Def
	stored    map[schema.GroupResource]*kind.Def
	custom    map[*kind.Def]*customresource.Resource // by the descriptors of its versions
}

// newTable returns a table of built-in resources.
func newTable(defs []*kind.Def) *table {
	t := &table{all: defs, byVersion: map[schema.GroupVersionResource]*kind.Def{}, stored: map[schema.GroupResource]*kind.Def{}}
	for _, d := range defs {
		t.byVersion[d.GroupVersion().WithResource(d.Plural)] = d
		if d.Hub == nil {
			t.stored[d.Resource()] = d
		}
	}
	return t
}

// New returns a State over a store, with the built-in resources. Close ends it.
func New(ctx context.Context, c *codec.Codec, s Store, defs []*kind.Def, log *slog.Logger) *State {
	st := &State{Codec: c, Store: s, log: log, caches: map[string]*runningCache{}, occupied: map[string]bool{},
		newlyOccupied: wait.NewSignal()}
	st.ctx, st.stop = context.WithCancel(ctx)
	st.defs.Store(newTable(defs))
	return st
}

// Close ends the caches and waits for them.
func (s *State) Close() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.wg.Wait()
}

// Def returns the descriptor of the storage version of a resource, which need not be served; nil when there is no such
// resource.
func (s *State) Def(gr schema.GroupResource) *kind.Def {
	if d := s.defs.Load().stored[gr]; d != nil {
		return d
	}
	s.syncDefinitions()
	return s.defs.Load().stored[gr]
}

// Defs returns the descriptors of every served version of every resource, custom ones included. They are no older than
// the definitions that any reader of the cache has seen.
func (s *State) Defs() []*kind.Def {
	s.syncDefinitions()
	return s.defs.Load().all
}

// Served returns the descriptor of a served resource; nil when there is none. Unlike Find it does not look for
// definitions that have just changed.
func (s *State) Served(gvr schema.GroupVersionResource) *kind.Def {
	return s.defs.Load().byVersion[gvr]
}

// Context returns the context in which the caches run. It ends with Close.
func (s *State) Context() context.Context { return s.ctx }

// DefOfKind returns the descriptor of the served resource of a kind; nil when there is none.
func (s *State) DefOfKind(gvk schema.GroupVersionKind) *kind.Def {
	for _, d := range s.defs.Load().all {
		if d.GroupVersionKind == gvk {
			return d
		}
	}
	return nil
}

// VersionsOf returns the descriptors of every served version of a resource, also those of another group, as Events have
// one.
func (s *State) VersionsOf(gr schema.GroupResource) (out []*kind.Def) {
	for _, d := range s.defs.Load().all {
		if d.Resource() == gr || d.Storage().Resource() == gr {
			out = append(out, d)
		}
	}
	return out
}

// Cache returns the cache of a resource and starts it on first use.
func (s *State) Cache(def *kind.Def) *watch.Cache {
	def = def.Storage()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.caches[cacheName(def)]; ok {
		return c.Cache
	}
	config := watch.Config{
		Prefix: def.Prefix(), Source: s.Store, Log: s.log,
		Decode:  func(p kv.Pair) (kind.Object, error) { return s.Codec.Load(def, p) },
		Outline: def.Outline, Account: s.account(def),
	}
	if def.Load != nil { // the cache stays when the definition changes
		config.Decode = func(p kv.Pair) (kind.Object, error) { return s.Codec.Load(s.currentDef(def), p) }
		config.DecodeAll = func(ctx context.Context, pairs []kv.Pair) []kind.Loaded {
			return s.Codec.LoadAll(ctx, s.currentDef(def), pairs)
		}
	}
	if def.IndexField != "" {
		config.Index = def.Fields[def.IndexField]
	}
	ctx, stop := context.WithCancel(s.ctx)
	c := watch.New(config)
	s.caches[cacheName(def)] = &runningCache{c, stop}
	if s.ctx.Err() == nil { // otherwise the State is closed, and the cache stays empty
		s.wg.Go(func() { c.Run(ctx) })
	}
	return c
}

// cacheName returns the key of the cache of a resource. Each version of a custom resource has a cache of its own.
func cacheName(def *kind.Def) string {
	if def.Load != nil {
		return def.StorageFolder + "@" + def.Version
	}
	return def.StorageFolder
}

// startedCache returns the cache of a resource if it has been used; nil otherwise.
func (s *State) startedCache(def *kind.Def) *watch.Cache {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.caches[cacheName(def.Storage())]; c != nil {
		return c.Cache
	}
	return nil
}

// Offer decodes an object that is about to be stored, so that the writer and the cache can share it.
func (s *State) Offer(def *kind.Def, w *kv.Write) (*watch.Offer, error) {
	obj, err := s.Codec.Load(def, kv.Pair{Value: w.Value})
	if err != nil {
		return nil, err
	}
	return watch.NewOffer(s.startedCache(def), w.Key, w.Value, obj), nil
}

// HoldBack delays a writer of a resource whose cache is too far behind the writes before it.
func (s *State) HoldBack(ctx context.Context, def *kind.Def) {
	if c := s.startedCache(def); c != nil {
		c.HoldBack(ctx)
	}
}

// Wrote tells the cache of a resource that an object was written at a revision.
func (s *State) Wrote(def *kind.Def, rev int64) {
	if c := s.startedCache(def); c != nil {
		c.Wrote(rev)
	}
}

// StoredSize returns how many bytes an object has in the store at a revision, if its cache knows.
func (s *State) StoredSize(def *kind.Def, key string, rev int64) (int, bool) {
	c := s.startedCache(def)
	if c == nil {
		return 0, false
	}
	return c.Size(key, rev)
}

// Entry decodes a key and value of the store as the cache does.
func (s *State) Entry(def *kind.Def, p kv.Pair) (*watch.Entry, error) {
	obj, err := s.Codec.Load(def, p)
	if err != nil {
		return nil, err
	}
	return watch.NewEntry(p.Key, obj, p.Rev), nil
}

// Counts returns the number of objects of each resource whose cache has been used.
func (s *State) Counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for _, def := range s.defs.Load().stored {
		if c := s.caches[cacheName(def)]; c != nil {
			out[def.Resource().String()] = c.Len()
		}
	}
	return out
}

// Behind returns the names of the resources whose cache has not reached a revision.
func (s *State) Behind(rev int64) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range s.caches {
		if c.Rev() < rev {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Get reads the newest state of one object. The object is shared and read-only.
func (s *State) Get(ctx context.Context, gr schema.GroupResource, namespace, name string) (kind.Object, error) {
	def := s.Def(gr)
	if def == nil {
		return nil, fmt.Errorf("no resource %s", gr)
	}
	e, ok, err := s.Newest(ctx, def, def.Key(namespace, name))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, apistatus.NotFound(def, name)
	}
	return e.Object(), nil
}

// List reads the newest state of the objects of a namespace, or of all. If some cannot be decoded, it returns the
// others and an error: a rule that cannot be read must not be taken for one that does not exist.
func (s *State) List(ctx context.Context, gr schema.GroupResource, namespace string) (iter.Seq[kind.Object], error) {
	def := s.Def(gr)
	if def == nil {
		return nil, fmt.Errorf("no resource %s", gr)
	}
	c, prefix := s.Cache(def), KeyPrefix(def, namespace)
	err := c.FreshWithin(ctx, CacheTimeout)
	if _, late := errors.AsType[*watch.TooNew](err); late {
		entries, err := s.listStored(ctx, def, prefix)
		return objectsOf(entries), err
	}
	if err != nil {
		return nil, apistatus.FromStore(err)
	}
	entries, _ := c.List(prefix, nil)
	return objectsOf(entries), UnreadableError(c, c.UnreadableKeys(prefix))
}

// objectsOf yields the objects of entries.
func objectsOf(entries []*watch.Entry) iter.Seq[kind.Object] {
	return func(yield func(kind.Object) bool) {
		for _, e := range entries {
			if !yield(e.Object()) {
				return
			}
		}
	}
}

// KeyPrefix returns the prefix of the keys of a resource in a namespace, or in all when the namespace is empty.
func KeyPrefix(def *kind.Def, namespace string) string {
	if def.Scope == kind.Namespaced && namespace != "" {
		return def.Prefix() + namespace + "/"
	}
	return def.Prefix()
}
