package collection

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"proa.dev/kv"
	"proa.dev/server/apistatus"
	"proa.dev/server/state"
	"proa.dev/watch"
)

// nextPage reads the page that a continue token names.
func (c *Reader) nextPage(ctx context.Context, q *Query) (*List, error) {
	if rv := q.Options.ResourceVersion; rv != "" && rv != "0" {
		return nil, apistatus.BadRequest("specifying resource version is not allowed when using continue")
	}
	t, err := decodeToken(q.Options.Continue)
	if err != nil {
		return nil, apistatus.BadRequest("invalid continue token: %v", err)
	}
	prefix := state.KeyPrefix(q.Def.Storage(), q.Namespace)
	return c.pageAt(ctx, q, t.Rev, prefix+t.Start, true)
}

// storePart is how many objects are read from the store at a time, and maxStoreReaders how many requests do so at the
// same time: how large the objects are is known only after they were read.
const storePart, maxStoreReaders = 100, 4

// storeCost is how many bytes of memory an object takes for each byte in the store. Unlike an object of the cache it is
// not shared.
const storeCost = 6

// lease adds objects that were read from the store to the memory of the answer, and reports whether there is room for
// them.
func (q *Query) lease(pairs []kv.Pair) bool {
	if q.Answer == nil {
		return true
	}
	size := int64(0)
	for i := range pairs {
		size += int64(len(pairs[i].Value))
	}
	return q.Answer.Grow(storeCost * size)
}

// readStore reads some objects at an older revision, and reports whether the answer has room for them.
func (c *Reader) readStore(ctx context.Context, q *Query, at kv.Range) (page kv.Page, held bool, err error) {
	select {
	case c.storeReaders <- struct{}{}:
		defer func() { <-c.storeReaders }()
	case <-ctx.Done():
		return page, false, ctx.Err()
	}
	page, err = c.state.Store.List(ctx, at)
	if held = err == nil && q.lease(page.Pairs); !held {
		page.Pairs = nil
	}
	return page, held, err
}

// pageAt reads a page from the store at a revision, beginning with the key from. A negative revision is the newest one,
// which an inconsistent continue token asks for.
func (c *Reader) pageAt(ctx context.Context, q *Query, rev int64, from string, isContinue bool) (*List, error) {
	def, o := q.Def.Storage(), q.Options
	prefix := state.KeyPrefix(def, q.Namespace)
	keep := StoredFilter(q.Def, o.Filter(q.Def))
	at := kv.Range{Prefix: prefix, From: from, Limit: storePart, Rev: max(rev, 0)}
	l, rest := &List{}, int64(0)
	var unreadable []string
	defer func() { o.WarnUnreadable(unreadable, q.Warn) }()
	for full := false; !full; {
		if o.Limit > 0 && keep == nil {
			at.Limit = min(storePart, o.Limit-int64(len(l.Items)))
		}
		page, held, err := c.readStore(ctx, q, at)
		if errors.Is(err, kv.ErrCompacted) {
			return nil, expiredError(isContinue, strings.TrimPrefix(from, prefix))
		}
		if errors.Is(err, kv.ErrFuture) {
			return nil, apistatus.TooLargeVersion(&watch.TooNew{Asked: rev, Have: c.state.Cache(def).Rev()})
		}
		if err != nil {
			return nil, apistatus.FromStore(err)
		}
		if !at.Uncounted {
			rest, at.Uncounted = page.Total, true
			if rev <= 0 {
				rev = page.Rev
			}
			at.Rev = rev
			l.Meta.ResourceVersion = strconv.FormatInt(rev, 10)
		}
		if full = !held; full && (o.Limit == 0 || len(l.Items) == 0) { // a page may be shorter than its limit, but not empty
			return nil, apistatus.TooManyRequests()
		}
		for i, loaded := range c.state.Codec.LoadAll(ctx, def, page.Pairs) {
			p := &page.Pairs[i]
			at.From = p.Key + "\x00"
			rest--
			if loaded.Err != nil {
				unreadable = append(unreadable, p.Key)
				continue
			}
			e := watch.NewEntry(p.Key, loaded.Object, p.Rev)
			if keep == nil || keep(e.Outline()) {
				l.Items = append(l.Items, e)
			}
			if full = o.Limit > 0 && int64(len(l.Items)) >= o.Limit; full {
				break
			}
		}
		if rest <= 0 || held && len(page.Pairs) == 0 {
			return l, nil
		}
	}
	l.Meta.Continue = token{Rev: rev, Start: strings.TrimPrefix(at.From, prefix)}.encode()
	if keep == nil {
		l.Meta.RemainingItemCount = &rest
	}
	return l, nil
}
