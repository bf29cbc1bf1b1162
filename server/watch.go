package server

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"proa.dev/kinds/kind"
	"proa.dev/server/apistatus"
	"proa.dev/server/collection"
	"proa.dev/server/fairqueue"
	"proa.dev/server/state"
	"proa.dev/watch"
)

// Stream is an open watch. Whoever gets it sends its events, then closes the Watcher and calls Ended.
type Stream struct {
	Def             *kind.Def
	Watcher         *watch.Watcher
	State           []*watch.Entry // the present objects, to be sent first as ADDED
	Rev             int64          // the revision of State
	InitialBookmark bool           // State ends with a bookmark that says so
	Bookmarks       bool
	Duration        time.Duration   // after which the watch ends
	Stopping        context.Context // ends when the server stops
	Ended           func()          // to be called once when the watch is over
	Work            *fairqueue.Work // the processor time of the request; nil when that is not limited
}

// watch serves a watch: hop 8 as a client sees it.
func (s *Server) watch(ctx context.Context, r *Request) (*Response, error) {
	def, o := r.Def.Storage(), &r.Options.List
	cache := s.State.Cache(def)
	sel := watch.Selection{Prefix: state.KeyPrefix(def, r.Namespace), Keep: collection.StoredFilter(r.Def, o.Filter(r.Def))}
	if name := o.ExactField("metadata.name"); name != "" && (def.Scope == kind.Cluster || r.Namespace != "") {
		sel.Prefix, sel.Exact = def.Key(r.Namespace, name), true
	}
	if def.IndexField != "" && r.Namespace == "" && !sel.Exact {
		sel.Index = o.ExactField(def.IndexField)
	}
	st := &Stream{Def: r.Def, Stopping: s.watching, Work: r.Work, Bookmarks: o.Bookmarks,
		Duration: time.Duration(o.TimeoutSeconds) * time.Second}
	if st.Duration <= 0 {
		st.Duration = 30*time.Minute + rand.N(30*time.Minute)
	}
	start := watch.Start{}
	switch rv := o.ResourceVersion; {
	case o.Initial != nil && *o.Initial:
		if err := collection.WaitForVersion(ctx, cache, rv); err != nil {
			return nil, err
		}
		start.State, st.InitialBookmark = true, true
	case rv == "" || rv == "0":
		if err := collection.WaitForVersion(ctx, cache, rv); err != nil {
			return nil, err
		}
		start.State = o.Initial == nil
	default:
		rev, err := strconv.ParseUint(rv, 10, 63)
		if err != nil {
			return nil, collection.InvalidVersion(rv, err)
		}
		start.After = int64(rev)
	}
	if !start.State && start.After == 0 {
		start.After = cache.Rev()
	}
	if err := s.State.RetryConversion(ctx, def, cache, sel.Prefix); err != nil {
		return nil, err
	}
	if sel.Exact {
		if err := cache.Unreadable(sel.Prefix); err != nil {
			return nil, apistatus.FromStore(err)
		}
	} else {
		o.WarnUnreadable(cache.UnreadableKeys(sel.Prefix), r.Warn)
	}
	if s.watches.Add(1) > int64(s.Watches) {
		s.watches.Add(-1)
		return nil, apistatus.TooManyRequests()
	}
	st.Ended = func() { s.watches.Add(-1) }
	var err error
	if st.Watcher, st.State, st.Rev, err = cache.Watch(ctx, sel, start); err != nil {
		st.Ended()
		return nil, apistatus.FromStore(err)
	}
	return &Response{Code: apistatus.CodeOK, Watch: st}, nil
}
