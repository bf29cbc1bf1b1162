package server

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/codec"
	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/custom"
	"proa.dev/watch"
)

// Store is what the server needs of hop 7.
type Store interface {
	kv.Reader
	kv.Watcher
	kv.Committer
}

// State is the one copy of the cluster's objects in this process: a cache for each stored resource, started when it is
// first asked for. It is made before the server, because authentication and authorization read it too.
type State struct {
	Codec *codec.Codec
	Store Store
	// Alone says that nobody but this process writes to the store. It is set before anybody uses the State.
	Alone bool
	log   *slog.Logger

	ctx  context.Context // the life of the caches; State owns their goroutines
	stop context.CancelFunc
	wg   sync.WaitGroup

	defs    atomic.Pointer[table]
	mu      sync.Mutex // guards caches and occupied, and that no cache begins to run after the end
	caches  map[string]*running
	customs customs
	// occupied has the custom resources of which it is known whether they have objects, by where they are stored; see Occupied.
	occupied      map[string]bool
	newlyOccupied chan struct{}
}

// running is a cache, and what ends it.
type running struct {
	*watch.Cache
	stop context.CancelFunc
}

// table finds descriptors. It is immutable; a custom resource replaces it.
type table struct {
	all       []*kind.Def
	byVersion map[schema.GroupVersionResource]*kind.Def
	stored    map[schema.GroupResource]*kind.Def
	custom    map[*kind.Def]*custom.Resource // whose version a descriptor is
}

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

// NewState makes the state; Close ends it.
func NewState(ctx context.Context, c *codec.Codec, s Store, defs []*kind.Def, log *slog.Logger) *State {
	st := &State{Codec: c, Store: s, log: log, caches: map[string]*running{}, occupied: map[string]bool{}, newlyOccupied: make(chan struct{}, 1)}
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

// Def finds the stored version of a resource, which need not be served.
func (s *State) Def(gr schema.GroupResource) *kind.Def {
	if d := s.defs.Load().stored[gr]; d != nil {
		return d
	}
	s.syncDefinitions()
	return s.defs.Load().stored[gr]
}

// Defs lists every served version of every resource, custom ones included, as it is at this moment: no older than the definitions that
// any reader of the cache has seen.
func (s *State) Defs() []*kind.Def {
	s.syncDefinitions()
	return s.defs.Load().all
}

// kind finds the resource of a kind.
func (s *State) kind(gvk schema.GroupVersionKind) *kind.Def {
	for _, d := range s.defs.Load().all {
		if d.GroupVersionKind == gvk {
			return d
		}
	}
	return nil
}

// versions lists every served version of a resource, also those of another group, as Events have.
func (s *State) versions(gr schema.GroupResource) (out []*kind.Def) {
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
		Outline: def.Outline,
	}
	if def.Load != nil { // the definition may change, and the cache stays
		config.Decode = func(p kv.Pair) (kind.Object, error) { return s.Codec.Load(s.current(def), p) }
	}
	if def.Index != "" {
		config.Index = def.Fields[def.Index]
	}
	ctx, stop := context.WithCancel(s.ctx)
	c := watch.New(config)
	s.caches[cacheName(def)] = &running{c, stop}
	if s.ctx.Err() == nil { // otherwise nobody waits for it any more, and it stays empty
		s.wg.Go(func() { c.Run(ctx) })
	}
	return c
}

// cacheName names the cache of a resource. Versions of a custom resource have one each, because they are worked on as they are.
func cacheName(def *kind.Def) string {
	if def.Load != nil {
		return def.Stored + "@" + def.Version
	}
	return def.Stored
}

// started returns the cache of a resource if somebody has asked for it.
func (s *State) started(def *kind.Def) *watch.Cache {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.caches[cacheName(def.Storage())]; c != nil {
		return c.Cache
	}
	return nil
}

// offer decodes what is about to be stored, for the writer and for the cache.
func (s *State) offer(def *kind.Def, w *kv.Write) (*watch.Offer, error) {
	obj, err := s.Codec.Load(def, kv.Pair{Value: w.Value})
	if err != nil {
		return nil, err
	}
	return watch.NewOffer(s.started(def), w.Key, w.Value, obj), nil
}

// size is how many bytes an object takes in the store at a revision, if a cache knows.
func (s *State) size(def *kind.Def, key string, rev int64) (int, bool) {
	c := s.started(def)
	if c == nil {
		return 0, false
	}
	return c.Size(key, rev)
}

// entry decodes a pair that the store handed over, as the cache would.
func (s *State) entry(def *kind.Def, p kv.Pair) (*watch.Entry, error) {
	obj, err := s.Codec.Load(def, p)
	if err != nil {
		return nil, err
	}
	return watch.NewEntry(p.Key, obj, p.Rev), nil
}

// Counts is the number of objects of each resource whose cache has been asked for.
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

// Behind names the resources whose cache has not reached a revision.
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

// Get reads one object, fresh. The object is shared and read-only.
func (s *State) Get(ctx context.Context, gr schema.GroupResource, namespace, name string) (kind.Object, error) {
	def := s.Def(gr)
	if def == nil {
		return nil, fmt.Errorf("no resource %s", gr)
	}
	c := s.Cache(def)
	if err := c.Fresh(ctx); err != nil {
		return nil, storeError(err)
	}
	e, ok, err := lookUp(c, def.Key(namespace, name))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, notFound(def, name)
	}
	return e.Object(), nil
}

// List reads the objects of a namespace, or all of them, fresh. If some cannot be decoded it returns the others and an error: a rule that
// cannot be read must not be taken for one that is not there.
func (s *State) List(ctx context.Context, gr schema.GroupResource, namespace string) (iter.Seq[kind.Object], error) {
	def := s.Def(gr)
	if def == nil {
		return nil, fmt.Errorf("no resource %s", gr)
	}
	c := s.Cache(def)
	if err := c.Fresh(ctx); err != nil {
		return nil, storeError(err)
	}
	entries, _ := c.List(scope(def, namespace), nil)
	return func(yield func(kind.Object) bool) {
		for _, e := range entries {
			if !yield(e.Object()) {
				return
			}
		}
	}, unreadableError(c, c.UnreadableKeys(scope(def, namespace)))
}

// scope is the key prefix of a namespace of a resource, or of all of it.
func scope(def *kind.Def, namespace string) string {
	if def.Scope == kind.Namespaced && namespace != "" {
		return def.Prefix() + namespace + "/"
	}
	return def.Prefix()
}
