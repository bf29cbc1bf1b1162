package state

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/server/apistatus"
	"proa.dev/server/customresource"
	"proa.dev/server/schema"
	"proa.dev/watch"
)

// customResources are the custom resources of a State, as far as it has followed their definitions.
type customResources struct {
	call        customresource.Caller
	definitions *watch.Cache // nil when nobody follows definitions

	mu      sync.Mutex // guards all, and orders changes of the table
	all     map[string]*customresource.Resource
	applied atomic.Int64 // how many changes of the cache of definitions are in the table

	converting sync.Map // by schema.GroupResource: a chan struct{} with a place for the request that retries its conversion webhook
	managers   sync.Map // of managedFields: *schema.Manager by customTarget
}

// FollowDefinitions serves the custom resources of all CustomResourceDefinitions and follows their changes until the
// State is closed. It returns when the present ones are served. call calls conversion webhooks.
func (s *State) FollowDefinitions(ctx context.Context, call customresource.Caller) error {
	def := s.Def(gr.CustomResourceDefinitions)
	if def == nil {
		return nil
	}
	c := s.Cache(def)
	if err := c.WaitUntilFresh(ctx); err != nil {
		return apistatus.FromStore(err)
	}
	s.customResources.call, s.customResources.definitions = call, c
	s.syncDefinitions()
	s.wg.Go(func() { s.followDefinitions(c) })
	return nil
}

// followDefinitions updates the table of resources whenever a definition has changed.
func (s *State) followDefinitions(c *watch.Cache) {
	for s.ctx.Err() == nil {
		w, _, _, err := c.Watch(s.ctx, watch.Selection{Prefix: c.Prefix}, watch.Start{State: true})
		if err != nil {
			if wait.Sleep(s.ctx, 100*time.Millisecond) != nil {
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

// syncDefinitions updates the table of resources from the cache of definitions. It costs nothing when no definition has
// changed, so a function that does not find a resource calls it and looks again: a client may have seen that a
// definition is established before the table was updated. While a stored definition cannot be decoded, its resource is
// served as before.
func (s *State) syncDefinitions() {
	c := s.customResources.definitions
	if c == nil || c.Changes() == s.customResources.applied.Load() {
		return
	}
	s.customResources.mu.Lock()
	defer s.customResources.mu.Unlock()
	if c.Changes() == s.customResources.applied.Load() {
		return
	}
	stored := readDefinitions(c)
	next := map[string]*customresource.Resource{}
	changed := false
	var reload []*customresource.Resource
	for _, name := range stored.unreadable {
		if before := s.customResources.all[name]; before != nil {
			next[name] = before
		}
	}
	for _, e := range stored.entries {
		d, ok := e.Outline().(*apiextensionsv1.CustomResourceDefinition)
		if !ok || !customresource.IsServed(d) {
			continue
		}
		before := s.customResources.all[d.Name]
		if before != nil && before.Describes(d) {
			next[d.Name] = before
			continue
		}
		changed = true
		next[d.Name] = customresource.New(s.ctx, d, fullDefinition(e, d), s.customResources.call)
		if before != nil && before.Definition.UID == d.UID && !before.DecodesLike(d) {
			reload = append(reload, next[d.Name])
		}
	}
	if changed || len(next) != len(s.customResources.all) {
		old := s.customResources.all
		s.customResources.all = next
		t := s.defs.Load().withCustom(next)
		s.defs.Store(t)
		s.customResources.managers.Range(func(key, _ any) bool {
			if t.custom[key.(customTarget).def] == nil {
				s.customResources.managers.Delete(key)
			}
			return true
		})
		s.changeCaches(old, next, reload, stored.rev)
	}
	s.customResources.applied.Store(stored.changes)
}

// storedDefinitions are the definitions in their cache at one time.
type storedDefinitions struct {
	entries    []*watch.Entry
	unreadable []string // the names of those that cannot be decoded
	rev        int64
	changes    int64 // how many changes of the cache they include
}

// readDefinitions reads the definitions in their cache. It reads them again if one changes meanwhile: a definition that
// becomes readable or unreadable must not be missed in both lists, as if it were deleted.
func readDefinitions(c *watch.Cache) storedDefinitions {
	for {
		d := storedDefinitions{changes: c.Changes()}
		d.entries, d.rev = c.List(c.Prefix, nil)
		for _, key := range c.UnreadableKeys(c.Prefix) {
			d.unreadable = append(d.unreadable, strings.TrimPrefix(key, c.Prefix))
		}
		if c.Changes() == d.changes {
			return d
		}
	}
}

// fullDefinition returns the function that decodes a definition with its schemas; the cache shows only its outline.
func fullDefinition(e *watch.Entry, outline *customresource.Definition) func() *customresource.Definition {
	return func() *customresource.Definition {
		if d, ok := e.Object().(*customresource.Definition); ok {
			return d
		}
		return outline
	}
}

// StoppedError returns the error for a request whose cache has ended while it waited: 404 when the definition of the
// custom resource was deleted, 503 when the server stops.
func (s *State) StoppedError(def *kind.Def) error {
	s.syncDefinitions()
	if def.Load != nil && s.defs.Load().custom[def] == nil {
		return apistatus.NoSuchResource()
	}
	return apistatus.Unavailable("the server stops; try again")
}

// changeCaches ends the caches of custom resources whose definition was deleted, and reloads those whose definition has
// changed. The definitions are those at a revision.
func (s *State) changeCaches(old, next map[string]*customresource.Resource, reload []*customresource.Resource, rev int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, before := range old {
		if now := next[name]; now != nil && now.Definition.UID == before.Definition.UID {
			continue
		}
		for _, d := range before.Versions() {
			delete(s.occupied, d.StorageFolder)
			if c := s.caches[cacheName(d)]; c != nil {
				delete(s.caches, cacheName(d))
				s.stopAt(c, rev)
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

// stopAt ends a cache when it has reached a revision, or cannot reach it: its watchers get the deletions of the last objects before they
// are ended. The caller holds s.mu.
func (s *State) stopAt(c *runningCache, rev int64) {
	if s.ctx.Err() != nil {
		return // all caches end
	}
	s.wg.Go(func() {
		defer c.stop()
		if err := c.WaitFor(s.ctx, rev); err != nil && s.ctx.Err() == nil {
			s.log.Warn("watches of a custom resource end before its last objects are seen to be deleted", "prefix", c.Prefix, "err", err)
		}
	})
}

// currentDef returns the descriptor of a version of a custom resource as its definition is now, or def when there is
// none any more.
func (s *State) currentDef(def *kind.Def) *kind.Def {
	t := s.defs.Load()
	if d := t.byVersion[def.GroupVersion().WithResource(def.Plural)]; d != nil {
		return d
	}
	if d := t.stored[def.Resource()]; d != nil && d.Version == def.Version {
		return d
	}
	return def
}

// Find returns the descriptor of a served resource by the present definitions; nil when there is none.
func (s *State) Find(gvr runtimeschema.GroupVersionResource) *kind.Def {
	if d := s.defs.Load().byVersion[gvr]; d != nil {
		return d
	}
	s.syncDefinitions()
	return s.defs.Load().byVersion[gvr]
}

// Custom returns the custom resource that a descriptor is a version of; nil for a built-in resource. A request that
// began before the definition was changed has an older descriptor and gets the resource as it is now; nil when the
// definition was deleted.
func (s *State) Custom(def *kind.Def) *customresource.Resource {
	if def.Load == nil {
		return nil
	}
	t := s.defs.Load()
	if c := t.custom[def]; c != nil {
		return c
	}
	return t.custom[s.currentDef(def)]
}

// withCustom returns a table of the same built-in resources and of these custom ones. A custom resource never replaces
// a built-in one.
func (t *table) withCustom(resources map[string]*customresource.Resource) *table {
	var defs []*kind.Def
	for _, d := range t.all {
		if t.custom[d] == nil {
			defs = append(defs, d)
		}
	}
	next := newTable(defs)
	next.custom = map[*kind.Def]*customresource.Resource{}
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

// RetryConversion converts objects under a prefix again that are missing in the cache because their conversion webhook
// did not answer. So a client that lists them gets all of them or an error, never a part.
func (s *State) RetryConversion(ctx context.Context, def *kind.Def, cache *watch.Cache, prefix string) error {
	c := s.Custom(def)
	if c == nil || !c.ConvertsByWebhook() || len(cache.UnreadableKeys(prefix)) == 0 {
		return nil
	}
	// One request at a time retries for a resource, and none waits for the webhook of another resource.
	place, _ := s.customResources.converting.LoadOrStore(def.Resource(), make(chan struct{}, 1))
	select {
	case place.(chan struct{}) <- struct{}{}:
		defer func() { <-place.(chan struct{}) }()
	case <-ctx.Done():
		return apistatus.FromStore(ctx.Err())
	}
	return apistatus.FromStore(cache.Retry(ctx, prefix))
}

// sortCustom sorts descriptors by group, plural and version.
func sortCustom(defs []*kind.Def) {
	slices.SortFunc(defs, func(a, b *kind.Def) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Plural, b.Plural), cmp.Compare(a.Version, b.Version))
	})
}

// customTarget is a custom resource, or a subresource of it, as a target of writes.
type customTarget struct {
	def *kind.Def
	sub string
}

// CustomFieldManager returns what keeps the managedFields of a custom resource. It is made by owner on first use, and
// kept until the definition changes.
func (s *State) CustomFieldManager(owner *schema.Owner, def *kind.Def, t schema.Target) *schema.Manager {
	key := customTarget{def, t.Subresource}
	if m, found := s.customResources.managers.Load(key); found {
		return m.(*schema.Manager)
	}
	c := s.Custom(def)
	if c == nil { // its definition was deleted after the request began: field owners are kept without a schema
		none := &apiextensionsv1.CustomResourceDefinition{}
		c = customresource.New(s.ctx, none, func() *customresource.Definition { return none }, nil)
	}
	types, err := c.Types()
	if err != nil {
		s.log.Warn("the schema of a custom resource cannot be used for server-side apply", "resource", def.Resource(), "err", err)
	}
	m := owner.Custom(t, schema.CustomTypes{Types: types.Converter, Convertor: c, Defaulter: c, Creater: c, Versions: types.Versions})
	if s.defs.Load().custom[def] != nil {
		s.customResources.managers.Store(key, m)
	}
	return m
}
