package server

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/server/custom"
	fieldowners "proa.dev/server/schema"
	"proa.dev/watch"
)

// customs are the custom resources of a State, as far as it has followed their definitions.
type customs struct {
	call        custom.Caller
	definitions *watch.Cache // nil when nobody follows definitions

	mu   sync.Mutex // guards all, and orders changes of the table
	all  map[string]*custom.Resource
	seen atomic.Int64 // the changes of the cache of definitions that are in the table

	converting sync.Map // by schema.GroupResource: a chan struct{} with a place for who asks its conversion webhook again
	managers   sync.Map // of field owners: *fieldowners.Manager by customTarget
}

// FollowDefinitions serves the custom resources of all definitions, and those of every later change, until the State is closed. It returns
// when the present ones are served. call reaches conversion webhooks.
func (s *State) FollowDefinitions(ctx context.Context, call custom.Caller) error {
	def := s.Def(gr.CustomResourceDefinitions)
	if def == nil {
		return nil
	}
	c := s.Cache(def)
	if err := c.Fresh(ctx); err != nil {
		return storeError(err)
	}
	s.customs.call, s.customs.definitions = call, c
	s.syncDefinitions()
	s.wg.Go(func() { s.follow(c) })
	return nil
}

// follow takes over definitions whenever the cache of them has changed.
func (s *State) follow(c *watch.Cache) {
	for s.ctx.Err() == nil {
		w, _, _, err := c.Watch(s.ctx, watch.Selection{Prefix: c.Prefix}, watch.Start{State: true})
		if err != nil {
			if pause(s.ctx, 100*time.Millisecond) != nil {
				return
			}
			continue
		}
		var items []watch.Item
		for err == nil {
			s.syncDefinitions()
			items, err = w.Next(s.ctx, nil, items)
		}
		w.Close()
	}
}

// syncDefinitions brings the table of resources up to the cache of definitions. It costs nothing when nothing has changed, so who does not
// find a resource calls it before saying so: a client may have seen that a definition is established before the table did.
func (s *State) syncDefinitions() {
	c := s.customs.definitions
	if c == nil || c.Changes() == s.customs.seen.Load() {
		return
	}
	s.customs.mu.Lock()
	defer s.customs.mu.Unlock()
	changes := c.Changes()
	if changes == s.customs.seen.Load() {
		return
	}
	entries, _ := c.List(c.Prefix, nil)
	next := map[string]*custom.Resource{}
	changed := false
	var reload []*custom.Resource
	for _, e := range entries {
		d, ok := e.Outline().(*apiextensionsv1.CustomResourceDefinition)
		if !ok || !custom.IsServed(d) {
			continue
		}
		was := s.customs.all[d.Name]
		if was != nil && was.Describes(d) {
			next[d.Name] = was
			continue
		}
		changed = true
		next[d.Name] = custom.New(s.ctx, d, wholeOf(e, d), s.customs.call)
		if was != nil && was.Definition.UID == d.UID {
			reload = append(reload, next[d.Name])
		}
	}
	if changed || len(next) != len(s.customs.all) {
		old := s.customs.all
		s.customs.all = next
		t := s.defs.Load().withCustom(next)
		s.defs.Store(t)
		s.customs.managers.Range(func(key, _ any) bool {
			if t.custom[key.(customTarget).def] == nil {
				s.customs.managers.Delete(key)
			}
			return true
		})
		s.changeCaches(old, next, reload)
	}
	s.customs.seen.Store(changes)
}

// wholeOf finds the definition with its schemas whose outline the cache shows.
func wholeOf(e *watch.Entry, outline *custom.Definition) func() *custom.Definition {
	return func() *custom.Definition {
		if d, ok := e.Object().(*custom.Definition); ok {
			return d
		}
		return outline
	}
}

// stopped is what a client learns whose request waited for a cache that has ended meanwhile: the resource is gone, with its definition, or
// the server stops.
func (s *Server) stopped(def *kind.Def) error {
	s.State.syncDefinitions()
	if def.Load != nil && s.State.defs.Load().custom[def] == nil {
		return noSuchResource()
	}
	return away("the server stops; try again")
}

// changeCaches ends the caches of custom resources that are gone, and has those loaded again whose definition has changed.
func (s *State) changeCaches(old, next map[string]*custom.Resource, reload []*custom.Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, was := range old {
		if is := next[name]; is != nil && is.Definition.UID == was.Definition.UID {
			continue
		}
		for _, d := range was.Versions() {
			delete(s.occupied, d.Stored)
			if c := s.caches[cacheName(d)]; c != nil {
				c.stop()
				delete(s.caches, cacheName(d))
			}
		}
	}
	for _, r := range reload {
		for _, d := range r.Versions() {
			if c := s.caches[cacheName(d)]; c != nil {
				c.Reload()
			}
		}
	}
}

// current is the descriptor of a version of a custom resource as its definition is now.
func (s *State) current(def *kind.Def) *kind.Def {
	t := s.defs.Load()
	if d := t.byVersion[def.GroupVersion().WithResource(def.Plural)]; d != nil {
		return d
	}
	if d := t.stored[def.Resource()]; d != nil && d.Version == def.Version {
		return d
	}
	return def
}

// find returns the descriptor of a resource, as the definitions of this moment have it; nil when there is none.
func (s *State) find(gvr schema.GroupVersionResource) *kind.Def {
	if d := s.defs.Load().byVersion[gvr]; d != nil {
		return d
	}
	s.syncDefinitions()
	return s.defs.Load().byVersion[gvr]
}

// custom returns the custom resource that a descriptor is a version of; nil for a built-in one. A request that began before the definition
// was changed has a descriptor of before, and gets the resource as it is now; nil if there is none any more.
func (s *State) custom(def *kind.Def) *custom.Resource {
	if def.Load == nil {
		return nil
	}
	t := s.defs.Load()
	if c := t.custom[def]; c != nil {
		return c
	}
	return t.custom[s.current(def)]
}

// withCustom is a table of the same built-in resources and of these custom ones. A custom resource never takes the place of a built-in one.
func (t *table) withCustom(resources map[string]*custom.Resource) *table {
	var defs []*kind.Def
	for _, d := range t.all {
		if t.custom[d] == nil {
			defs = append(defs, d)
		}
	}
	next := newTable(defs)
	next.custom = map[*kind.Def]*custom.Resource{}
	for _, r := range resources {
		if r.Stored == nil || next.stored[r.Stored.Resource()] != nil { // a built-in one: definitions have their resource in their name
			continue
		}
		next.stored[r.Stored.Resource()] = r.Stored
		next.custom[r.Stored] = r
		for _, d := range r.Served {
			next.all = append(next.all, d)
			next.byVersion[d.GroupVersion().WithResource(d.Plural)] = d
			next.custom[d] = r
		}
	}
	sortCustom(next.all[len(defs):])
	return next
}

// reconvert has objects under a prefix converted again whose conversion webhook did not answer before. A client that asks for all of them gets
// all or an error, never a part.
func (s *State) reconvert(ctx context.Context, def *kind.Def, cache *watch.Cache, prefix string) error {
	c := s.custom(def)
	if c == nil || !c.ConvertsByWebhook() || len(cache.UnreadableKeys(prefix)) == 0 {
		return nil
	}
	// One at a time asks for a resource, and nobody waits for the webhook of another one.
	place, _ := s.customs.converting.LoadOrStore(def.Resource(), make(chan struct{}, 1))
	select {
	case place.(chan struct{}) <- struct{}{}:
		defer func() { <-place.(chan struct{}) }()
	case <-ctx.Done():
		return storeError(ctx.Err())
	}
	return storeError(cache.Retry(ctx, prefix))
}

// sortCustom puts descriptors in an order that does not depend on chance.
func sortCustom(defs []*kind.Def) {
	slices.SortFunc(defs, func(a, b *kind.Def) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Plural, b.Plural), cmp.Compare(a.Version, b.Version))
	})
}

// customTarget is one way to write objects of a custom resource.
type customTarget struct {
	def *kind.Def
	sub string
}

// customManager finds the keeper of field owners of a custom resource.
func (s *Server) customManager(r *Request, t fieldowners.Target) *fieldowners.Manager {
	key := customTarget{r.Def, t.Subresource}
	if m, found := s.State.customs.managers.Load(key); found {
		return m.(*fieldowners.Manager)
	}
	c := s.State.custom(r.Def)
	if c == nil { // its definition has gone since the request began: owners are kept without a schema
		none := &apiextensionsv1.CustomResourceDefinition{}
		c = custom.New(s.State.ctx, none, func() *custom.Definition { return none }, nil)
	}
	types, err := c.Types()
	if err != nil {
		s.Log.Warn("the schema of a custom resource cannot be used for server-side apply", "resource", r.Def.Resource(), "err", err)
	}
	m := s.Owner.Custom(t, fieldowners.CustomTypes{Types: types.Converter, Convertor: c, Defaulter: c, Creater: c, Versions: types.Versions})
	if s.State.defs.Load().custom[r.Def] != nil {
		s.State.customs.managers.Store(key, m)
	}
	return m
}
