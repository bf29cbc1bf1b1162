package collection

import (
	"context"
	"errors"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/server/apistatus"
	"proa.dev/server/fairqueue"
	"proa.dev/server/memorybudget"
	"proa.dev/server/state"
	"proa.dev/watch"
)

// List is a page of a collection, or all of it.
type List struct {
	Meta  metav1.ListMeta
	Items []*watch.Entry
	// SingleUse says that the list is encoded only once. Its items are released as they are encoded: an object that has
	// changed in the cache since is held by the list alone.
	SingleUse bool
}

// Release lets go of an item that has been encoded, if the list is for single use.
func (l *List) Release(i int) {
	if l.SingleUse {
		l.Items[i] = nil
	}
}

// Reader reads collections of a State.
type Reader struct {
	state        *state.State
	storeReaders chan struct{} // a place for each request that reads older revisions from the store
}

// NewReader returns a reader of a State's collections.
func NewReader(s *state.State) *Reader {
	return &Reader{state: s, storeReaders: make(chan struct{}, maxStoreReaders)}
}

// Query is what a request asks of a collection.
type Query struct {
	Def       *kind.Def // in the version of the request
	Namespace string    // empty for all
	Options   *Options
	Work      *fairqueue.Work     // the processor time of the request; nil when that is not limited
	Answer    *memorybudget.Lease // counts the memory of objects that are read from the store; nil when nobody counts it
	Warn      func(texts ...string)
}

// Page reads a collection, or a page of it. The resourceVersion and the continue token of the query decide whether it
// is read from the cache or, at an older revision, from the store.
func (c *Reader) Page(ctx context.Context, q *Query) (*List, error) {
	def, o := q.Def.Storage(), q.Options
	if o.Continue != "" {
		return c.nextPage(ctx, q)
	}
	if o.wantsExact() {
		rev, err := strconv.ParseUint(o.ResourceVersion, 10, 63)
		if err != nil {
			return nil, apistatus.BadRequest("invalid resource version: %v", InvalidVersion(o.ResourceVersion, err))
		}
		return c.pageAt(ctx, q, int64(rev), state.KeyPrefix(def, q.Namespace), false)
	}
	cache, limit := c.state.Cache(def), o.Limit
	if o.ResourceVersion == "0" && def.TTL == 0 { // objects with a TTL, which are Events, are always read in pages
		limit = 0 // a list of any version is served from the cache as a whole
	}
	err := WaitForVersion(ctx, cache, o.ResourceVersion)
	if err == nil && limit > 0 {
		// The next pages are read from the store at the revision of this one, which must not be older than what the
		// store still keeps.
		err = c.catchUp(ctx, cache)
	}
	if err != nil {
		return c.pageWithoutCache(ctx, q, err)
	}
	if err := c.state.RetryConversion(ctx, def, cache, state.KeyPrefix(def, q.Namespace)); err != nil {
		return nil, err
	}
	keep := o.Filter(q.Def)
	if name := o.ExactField("metadata.name"); name != "" && (def.Scope == kind.Cluster || q.Namespace != "") {
		return singleItem(cache, def.Key(q.Namespace, name), keep)
	}
	o.WarnUnreadable(cache.UnreadableKeys(state.KeyPrefix(def, q.Namespace)), q.Warn)
	if err := q.Work.Begin(ctx); err != nil {
		return nil, err
	}
	entries, rev := cache.List(state.KeyPrefix(def, q.Namespace), StoredFilter(q.Def, keep))
	q.Work.End()
	l := &List{Meta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(rev, 10)}, Items: entries}
	if limit > 0 && int64(len(entries)) > limit {
		l.Items = entries[:limit]
		last := l.Items[limit-1].Key
		l.Meta.Continue = token{Rev: rev, Start: strings.TrimPrefix(last, state.KeyPrefix(def, q.Namespace)) + "\x00"}.encode()
		if keep == nil {
			l.Meta.RemainingItemCount = new(int64(len(entries)) - limit)
		}
	}
	return l, nil
}

// pageWithoutCache answers a query for which waiting for the cache has ended with an error. If the cache has not reached a
// revision in time, the store is asked. If that has not reached it either, the client has made it up.
func (c *Reader) pageWithoutCache(ctx context.Context, q *Query, err error) (*List, error) {
	if bad, ok := errors.AsType[*field.Error](err); ok {
		return nil, apistatus.BadRequest("invalid resource version: %v", bad)
	}
	late, ok := errors.AsType[*watch.TooNew](err)
	if !ok {
		return nil, apistatus.FromStore(err)
	}
	l, err := c.pageAt(ctx, q, 0, state.KeyPrefix(q.Def.Storage(), q.Namespace), false)
	if err != nil {
		return nil, err
	}
	if rev, err := strconv.ParseInt(l.Meta.ResourceVersion, 10, 64); err != nil || rev < late.Asked {
		return nil, apistatus.TooLargeVersion(late)
	}
	return l, nil
}

// singleItem returns the list of the one object that a field selector names, or an empty list.
func singleItem(cache *watch.Cache, key string, keep func(kind.Object) bool) (*List, error) {
	l := &List{Meta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(cache.Rev(), 10)}}
	e, found, err := state.LookUp(cache, key)
	if found && (keep == nil || keep(e.Outline())) {
		l.Items = []*watch.Entry{e}
	}
	return l, err
}

// catchUp waits until a cache, whose objects may not have changed for long, has the present revision of the store.
func (c *Reader) catchUp(ctx context.Context, cache *watch.Cache) error {
	page, err := c.state.Store.List(ctx, kv.Range{Prefix: cache.Prefix, Limit: 1})
	if err != nil {
		return err
	}
	return cache.WaitFor(ctx, page.Rev)
}

// WaitForVersion waits until a cache is at least as new as a resourceVersion: the newest for "", any for "0". It returns a
// TooNew if that takes too long; the store may be asked then.
func WaitForVersion(ctx context.Context, cache *watch.Cache, rv string) error {
	if rv == "" {
		return cache.FreshWithin(ctx, state.CacheTimeout)
	}
	rev, err := strconv.ParseUint(rv, 10, 63)
	if err != nil {
		return InvalidVersion(rv, err)
	}
	return cache.WaitFor(ctx, int64(rev))
}

// InvalidVersion returns the error for a resourceVersion that is no number.
func InvalidVersion(rv string, err error) error {
	return field.Invalid(field.NewPath("resourceVersion"), rv, err.Error())
}
