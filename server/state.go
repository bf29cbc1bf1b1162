package server

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/codec"
	"proa.dev/kinds/kind"
	"proa.dev/kv"
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
	log   *slog.Logger

	ctx  context.Context // the life of the caches; State owns their goroutines
	stop context.CancelFunc
	wg   sync.WaitGroup

	defs   atomic.Pointer[table]
	mu     sync.Mutex // guards caches, and that none begins to run after the end
	caches map[string]*watch.Cache
}

// table finds descriptors. It is immutable; a custom resource replaces it.
type table struct {
	all       []*kind.Def
	byVersion map[schema.GroupVersionResource]*kind.Def
	stored    map[schema.GroupResource]*kind.Def
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
	st := &State{Codec: c, Store: s, log: log, caches: map[string]*watch.Cache{}}
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

// Def finds the stored version of a resource.
func (s *State) Def(gr schema.GroupResource) *kind.Def { return s.defs.Load().stored[gr] }

// kind finds the resource of a kind.
func (s *State) kind(gvk schema.GroupVersionKind) *kind.Def {
	for _, d := range s.defs.Load().all {
		if d.GroupVersionKind == gvk {
			return d
		}
	}
	return nil
}

// Cache returns the cache of a resource and starts it on first use.
func (s *State) Cache(def *kind.Def) *watch.Cache {
	def = def.Storage()
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.caches[def.Stored]; ok {
		return c
	}
	config := watch.Config{
		Prefix: def.Prefix(), Source: s.Store, Log: s.log,
		Decode: func(p kv.Pair) (kind.Object, error) { return s.Codec.Load(def, p) },
	}
	if def.Index != "" {
		config.Index = def.Fields[def.Index]
	}
	c := watch.New(config)
	s.caches[def.Stored] = c
	if s.ctx.Err() == nil { // otherwise nobody waits for it any more, and it stays empty
		s.wg.Go(func() { c.Run(s.ctx) })
	}
	return c
}

// started returns the cache of a resource if somebody has asked for it.
func (s *State) started(def *kind.Def) *watch.Cache {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caches[def.Storage().Stored]
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
	return &watch.Entry{Key: p.Key, Object: obj, Rev: p.Rev}, nil
}

// Counts is the number of objects of each resource whose cache has been asked for.
func (s *State) Counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for _, def := range s.defs.Load().stored {
		if c := s.caches[def.Stored]; c != nil {
			out[def.Resource().String()] = c.Len()
		}
	}
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
	e, ok := c.Get(def.Key(namespace, name))
	if !ok {
		return nil, notFound(def, name)
	}
	return e.Object, nil
}

// List reads the objects of a namespace, or all of them, fresh.
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
			if !yield(e.Object) {
				return
			}
		}
	}, nil
}

// scope is the key prefix of a namespace of a resource, or of all of it.
func scope(def *kind.Def, namespace string) string {
	if def.Scope == kind.Namespaced && namespace != "" {
		return def.Prefix() + namespace + "/"
	}
	return def.Prefix()
}
