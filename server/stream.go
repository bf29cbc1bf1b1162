package server

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
	"proa.dev/server/fair"
	"proa.dev/watch"
)

// Stream is an open watch.
type Stream struct {
	def       *kind.Def
	watcher   *watch.Watcher
	state     []*watch.Entry // to be sent first, as additions
	rev       int64          // what state is complete to
	initial   bool           // end the state with a bookmark that says so
	bookmarks bool
	lasts     time.Duration
	framed    bool            // every event is a message of its own
	stopping  context.Context // over when the server stops
	ended     func()
	sent      func(events int) // may be nil
	work      *fair.Work       // the computing of the request; nil when nobody shares that out
}

// watch serves a watch: hop 8 as a client sees it.
func (s *Server) watch(ctx context.Context, r *Request) (*Response, error) {
	def, o := r.Def.Storage(), &r.Options.List
	cache := s.State.Cache(def)
	sel := watch.Selection{Prefix: scope(def, r.Namespace), Keep: hubKeep(r.Def, o.keep(r.Def))}
	if name := o.exact("metadata.name"); name != "" && (def.Scope == kind.Cluster || r.Namespace != "") {
		sel.Prefix, sel.Exact = def.Key(r.Namespace, name), true
	}
	if def.Index != "" && r.Namespace == "" && !sel.Exact {
		sel.Index = o.exact(def.Index)
	}
	st := &Stream{def: r.Def, stopping: s.watching, work: r.work, bookmarks: o.Bookmarks, lasts: time.Duration(o.TimeoutSeconds) * time.Second}
	if st.lasts <= 0 {
		st.lasts = 30*time.Minute + rand.N(30*time.Minute)
	}
	start := watch.Start{}
	switch rv := o.ResourceVersion; {
	case o.Initial != nil && *o.Initial:
		if err := s.reach(ctx, cache, rv); err != nil {
			return nil, err
		}
		start.State, st.initial = true, true
	case rv == "" || rv == "0":
		if err := s.reach(ctx, cache, rv); err != nil {
			return nil, err
		}
		start.State = o.Initial == nil
	default:
		rev, err := strconv.ParseUint(rv, 10, 63)
		if err != nil {
			return nil, invalidVersion(rv, err)
		}
		start.After = int64(rev)
	}
	if !start.State && start.After == 0 {
		start.After = cache.Rev()
	}
	if err := s.State.reconvert(ctx, def, cache, sel.Prefix); err != nil {
		return nil, err
	}
	if sel.Exact {
		if err := cache.Unreadable(sel.Prefix); err != nil {
			return nil, storeError(err)
		}
	} else {
		warnUnreadable(r, cache.UnreadableKeys(sel.Prefix))
	}
	if s.watches.Add(1) > int64(s.Watches) {
		s.watches.Add(-1)
		return nil, tooMany()
	}
	st.ended = func() { s.watches.Add(-1) }
	var err error
	if st.watcher, st.state, st.rev, err = cache.Watch(ctx, sel, start); err != nil {
		st.ended()
		return nil, storeError(err)
	}
	return &Response{Code: http.StatusOK, Watch: st}, nil
}

// sink receives the frames of a watch; Flush sends what was written. It is told when the present state, with which a watch may
// begin, is encoded, and when it is sent.
type sink interface {
	Write([]byte) (int, error)
	Flush()
	encoded()
	stated()
}

// bookmarkEvery is how often a quiet watch tells its client that it is still up to date.
const bookmarkEvery = time.Minute

// run sends events until the watch ends. An error that the client can act on is sent as an event.
func (st *Stream) run(ctx context.Context, e *encoder, out sink) {
	defer st.ended()
	defer st.watcher.Close()
	ctx, stop := context.WithTimeout(ctx, st.lasts)
	defer stop()
	defer context.AfterFunc(st.stopping, stop)()
	header := true
	if !st.sendState(ctx, e, out, &header) {
		return
	}
	var idle <-chan time.Time
	var timer *time.Ticker
	if st.bookmarks {
		timer = time.NewTicker(bookmarkEvery - rand.N(bookmarkEvery/6))
		defer timer.Stop()
		idle = timer.C
	}
	var items []watch.Item
	for {
		var err error
		if items, err = st.watcher.Next(ctx, idle, items); err != nil {
			if !resumable(err) {
				st.fail(e, out, err)
			}
			return
		}
		if len(items) == 0 {
			if rev, caught := st.watcher.Caught(); caught && !st.bookmark(e, out, rev, nil) {
				return
			}
			continue
		}
		for _, it := range items {
			frame, err := st.encode(e, it, &header)
			if err != nil {
				st.fail(e, out, err)
				return
			}
			if _, err := out.Write(frame); err != nil {
				return
			}
		}
		out.Flush()
		st.count(len(items))
		if ctx.Err() != nil { // there may always be more events
			return
		}
	}
}

// resumable says that the client can go on after the last event that it got: the stream then ends without an error event.
func resumable(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, watch.ErrSlow) || errors.Is(err, watch.ErrStopped)
}

// count tells how many events were sent.
func (st *Stream) count(events int) {
	if st.sent != nil {
		st.sent(events)
	}
}

// encode returns the bytes of an event, shared by all watchers that see the same.
func (st *Stream) encode(e *encoder, it watch.Item, header *bool) ([]byte, error) {
	if e.f.shape == tabular && *header {
		*header = false
		return e.frame(it.As, it.Event.Object(it.As), true)
	}
	return it.Event.Encoded(it.As, e.f, func(t watch.Type, o kind.Object) ([]byte, error) { return e.frame(t, o, false) })
}

// sendState sends the present state, as much at a time as makes a piece, and says whether the client took it.
func (st *Stream) sendState(ctx context.Context, e *encoder, out sink, header *bool) bool {
	defer out.stated()
	defer st.work.End()
	buf := buffers.Get().(*bytes.Buffer)
	buf.Reset()
	defer recycle(buf)
	write := func() bool {
		st.work.End() // the client may take its time
		_, err := out.Write(buf.Bytes())
		buf.Reset()
		return err == nil
	}
	for i, entry := range st.state {
		if st.work.Begin(ctx) != nil {
			return false
		}
		frame, err := e.frame(watch.Added, entry.Object(), *header)
		if err != nil {
			if buf.Len() == 0 || write() {
				st.fail(e, out, err)
			}
			return false
		}
		*header = false
		st.state[i] = nil // the object may have changed since, and be held by nobody else
		if buf.Write(frame); (buf.Len() >= piece || st.framed) && !write() {
			return false
		}
	}
	st.work.End()
	st.count(len(st.state))
	st.state = nil
	out.encoded()
	if buf.Len() > 0 && !write() {
		return false
	}
	if st.initial && st.bookmarks {
		return st.bookmark(e, out, st.rev, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	out.Flush()
	return true
}

func (st *Stream) bookmark(e *encoder, out sink, rev int64, annotations map[string]string) bool {
	obj := st.def.New()
	obj.GetObjectKind().SetGroupVersionKind(st.def.GroupVersionKind)
	obj.SetResourceVersion(strconv.FormatInt(rev, 10))
	obj.SetAnnotations(annotations)
	plain := *e
	plain.def, plain.f.forNodes = versionless(st.def), false
	frame, err := plain.frame(watch.Bookmark, obj, false)
	if err != nil {
		return false
	}
	if _, err := out.Write(frame); err != nil {
		return false
	}
	out.Flush()
	return true
}

// versionless is a descriptor whose objects are shown as they are.
func versionless(def *kind.Def) *kind.Def {
	if def.Hub == nil {
		return def
	}
	d := *def
	d.Hub = nil
	return &d
}

// fail ends a watch with an error event.
func (st *Stream) fail(e *encoder, out sink, err error) {
	if errors.Is(err, watch.ErrReloaded) {
		err = apierrors.NewResourceExpired("the watch cannot be continued: " + err.Error())
	}
	inner := *e
	inner.f.shape = whole
	var buf bytes.Buffer
	if inner.codec.Append(&buf, inner.f.media, statusOf(err)) != nil {
		return
	}
	frame, err := inner.wrap("ERROR", buf.Bytes())
	if err != nil {
		return
	}
	if _, err := out.Write(frame); err == nil {
		out.Flush()
	}
}
