package collection

import (
	"context"
	"strconv"

	"proa.dev/kinds/kind"
	"proa.dev/server/apistatus"
	"proa.dev/server/state"
	"proa.dev/watch"
)

// Watch opens a watch of a collection, or of one object of it that the field selector names. If the watch starts with the present objects,
// it returns them and their revision.
func (c *Reader) Watch(ctx context.Context, q *Query) (*watch.Watcher, []*watch.Entry, int64, error) {
	def, o := q.Def.Storage(), q.Options
	cache := c.state.Cache(def)
	sel := watch.Selection{Prefix: state.KeyPrefix(def, q.Namespace), Keep: StoredFilter(q.Def, o.Filter(q.Def))}
	if name := o.ExactField("metadata.name"); name != "" && (def.Scope == kind.Cluster || q.Namespace != "") {
		sel.Prefix, sel.Exact = def.Key(q.Namespace, name), true
	}
	if def.IndexField != "" && q.Namespace == "" && !sel.Exact {
		sel.Index = o.ExactField(def.IndexField)
	}
	start := watch.Start{}
	wantsState := o.Initial != nil && *o.Initial
	switch rv := o.ResourceVersion; {
	case wantsState || rv == "" || rv == "0":
		wait := WaitForVersion
		if rv == "" { // longer, because only the cache can answer
			wait = func(ctx context.Context, cache *watch.Cache, _ string) error { return cache.WaitUntilFresh(ctx) }
		}
		if err := wait(ctx, cache, rv); err != nil {
			return nil, nil, 0, apistatus.FromStore(err)
		}
		start.State = wantsState || o.Initial == nil
	default:
		rev, err := strconv.ParseUint(rv, 10, 63)
		if err != nil {
			return nil, nil, 0, InvalidVersion(rv, err)
		}
		start.After = int64(rev)
	}
	if !start.State && start.After == 0 {
		start.After = cache.Rev()
	}
	if err := c.state.RetryConversion(ctx, def, cache, sel.Prefix); err != nil {
		return nil, nil, 0, err
	}
	if sel.Exact {
		if err := cache.Unreadable(sel.Prefix); err != nil {
			return nil, nil, 0, apistatus.FromStore(err)
		}
	} else {
		o.WarnUnreadable(cache.UnreadableKeys(sel.Prefix), q.Warn)
	}
	w, present, rev, err := cache.Watch(ctx, sel, start)
	if err != nil {
		return nil, nil, 0, apistatus.FromStore(err)
	}
	return w, present, rev, nil
}
