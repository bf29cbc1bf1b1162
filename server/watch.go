package server

import (
	"context"
	"math/rand/v2"
	"time"

	"proa.dev/kinds/kind"
	"proa.dev/server/apistatus"
	"proa.dev/server/fairqueue"
	"proa.dev/watch"
)

// Stream is an open watch. Whoever gets it sends its events, then closes the Watcher and calls Ended.
type Stream struct {
	Def             *kind.Def
	Watcher         Watcher
	State           []*watch.Entry // the present objects, to be sent first as ADDED
	Rev             int64          // the revision of State
	InitialBookmark bool           // State ends with a bookmark that says so
	Bookmarks       bool
	Duration        time.Duration   // after which the watch ends
	Stopping        context.Context // ends when the server stops
	Ended           func()          // to be called once when the watch is over
	Work            *fairqueue.Work // the processor time of the request; nil when that is not limited
}

// Watcher returns the events of a watch, see watch.Watcher.
type Watcher interface {
	Next(ctx context.Context, idle <-chan time.Time, buf []watch.Item) ([]watch.Item, error)
	DeliveredUpTo() (int64, bool)
	Close()
}

// watch serves a watch: hop 8 as a client sees it.
func (s *Server) watch(ctx context.Context, r *Request) (*Response, error) {
	o := &r.Options.List
	st := &Stream{Def: r.Def, Stopping: s.watching, Work: r.Work, Bookmarks: o.Bookmarks, InitialBookmark: o.Initial != nil && *o.Initial,
		Duration: time.Duration(o.TimeoutSeconds) * time.Second, Ended: func() { s.watches.Add(-1) }}
	if st.Duration <= 0 {
		st.Duration = 30*time.Minute + rand.N(30*time.Minute)
	}
	if s.watches.Add(1) > int64(s.Watches) {
		s.watches.Add(-1)
		return nil, apistatus.TooManyRequests()
	}
	var err error
	if r.Def.Storage().Computed != nil {
		a, q := r.ownAttributes(), s.computedQuery(r, "")
		q.Authorize = func(ctx context.Context) error { return s.AuthorizeAttributes(ctx, &a, nil) }
		st.Watcher, st.State, st.Rev, err = s.computed.Watch(ctx, q, o)
	} else {
		st.Watcher, st.State, st.Rev, err = s.collections.Watch(ctx, r.query())
	}
	if err != nil {
		st.Ended()
		return nil, err
	}
	return &Response{Code: apistatus.CodeOK, Watch: st}, nil
}
