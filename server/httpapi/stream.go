package httpapi

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/server"
	"proa.dev/server/apistatus"
	"proa.dev/server/encode"
	"proa.dev/server/responsewriter"
	"proa.dev/server/watchdelivery"
	"proa.dev/watch"
)

// eventWriter sends the events of a watch to a client.
type eventWriter struct {
	*server.Stream
	encoder *encode.Encoder
	out     eventSink
	framed  bool             // every event is a message of its own
	onSent  func(events int) // called with how many events were sent; may be nil
	header  bool             // the next event as a Table has the definitions of the columns
	watch   *watchdelivery.Watch
}

// eventSink receives the bytes of a watch; Flush sends what was written. stateEncoded and stateSent are called when the
// present objects, with which a watch may begin, are encoded and sent.
type eventSink interface {
	Write([]byte) (int, error)
	Flush()
	stateEncoded()
	stateSent()
}

// bookmarkEvery is how often a client gets a bookmark while there are no events.
const bookmarkEvery = time.Minute

// run sends events until the watch ends. An error after which the client cannot simply resume is sent as an event.
func (w *eventWriter) run(ctx context.Context, out eventSink) {
	w.out = out
	defer w.Ended()
	defer w.Watcher.Close()
	ctx, stop := context.WithTimeout(ctx, w.Duration)
	defer stop()
	defer context.AfterFunc(w.Stopping, stop)()
	if !w.sendState(ctx) {
		return
	}
	var idle <-chan time.Time
	var timer *time.Ticker
	if w.Bookmarks {
		timer = time.NewTicker(bookmarkEvery - rand.N(bookmarkEvery/6))
		defer timer.Stop()
		idle = timer.C
	}
	var items []watch.Item
	for {
		var err error
		if items, err = w.Watcher.Next(ctx, idle, items); err != nil {
			if !isResumable(err) {
				w.fail(err)
			}
			return
		}
		if len(items) == 0 {
			if rev, caught := w.Watcher.DeliveredUpTo(); caught && !w.bookmark(rev, nil) {
				return
			}
			continue
		}
		for _, it := range items {
			frame, err := w.encode(it)
			if err != nil {
				w.fail(err)
				return
			}
			w.watch.Sending()
			if _, err := w.out.Write(frame); err != nil {
				return
			}
		}
		w.out.Flush()
		w.watch.Sent(items)
		w.count(len(items))
		if ctx.Err() != nil { // Next may always have more events
			return
		}
	}
}

// isResumable says that the client can resume after the last event that it got: the stream then ends without an error
// event.
func isResumable(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, watch.ErrSlow) ||
		errors.Is(err, watch.ErrStopped)
}

// count reports how many events were sent.
func (w *eventWriter) count(events int) {
	if w.onSent != nil {
		w.onSent(events)
	}
}

// encode returns the bytes of an event, which are shared by all watchers with the same format.
func (w *eventWriter) encode(it watch.Item) ([]byte, error) {
	if w.encoder.Format.Shape == encode.Table && w.header {
		w.header = false
		return w.encoder.Event(it.As, it.Event.Object(it.As), true)
	}
	return it.Event.Encoded(it.As, w.encoder.Format,
		func(t watch.Type, o kind.Object) ([]byte, error) { return w.encoder.Event(t, o, false) })
}

// sendState sends the present objects, a piece at a time, and returns false when that failed.
func (w *eventWriter) sendState(ctx context.Context) bool {
	defer w.out.stateSent()
	defer w.Work.End()
	buf := responsewriter.GetBuffer()
	defer responsewriter.PutBuffer(buf)
	write := func() bool {
		w.Work.End() // no processor time is taken while the client reads
		_, err := w.out.Write(buf.Bytes())
		buf.Reset()
		return err == nil
	}
	for i, entry := range w.State {
		if w.Work.Begin(ctx) != nil {
			return false
		}
		frame, err := w.encoder.Event(watch.Added, entry.Object(), w.header)
		if err != nil {
			if buf.Len() == 0 || write() {
				w.fail(err)
			}
			return false
		}
		w.header = false
		w.State[i] = nil // an object that has changed since is held here alone
		if buf.Write(frame); (buf.Len() >= responsewriter.PieceSize || w.framed) && !write() {
			return false
		}
	}
	w.Work.End()
	w.count(len(w.State))
	w.State = nil
	w.out.stateEncoded()
	if buf.Len() > 0 && !write() {
		return false
	}
	if w.InitialBookmark && w.Bookmarks {
		return w.bookmark(w.Rev, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	w.out.Flush()
	return true
}

// bookmark sends a bookmark, and returns false when that failed.
func (w *eventWriter) bookmark(rev int64, annotations map[string]string) bool {
	obj := w.Def.New()
	obj.GetObjectKind().SetGroupVersionKind(w.Def.GroupVersionKind)
	obj.SetResourceVersion(strconv.FormatInt(rev, 10))
	obj.SetAnnotations(annotations)
	unconverted := *w.encoder
	unconverted.Def, unconverted.Format.ForNodes = versionless(w.Def), false
	frame, err := unconverted.Event(watch.Bookmark, obj, false)
	if err != nil {
		return false
	}
	if _, err := w.out.Write(frame); err != nil {
		return false
	}
	w.out.Flush()
	return true
}

// versionless returns a descriptor whose objects are encoded without conversion.
func versionless(def *kind.Def) *kind.Def {
	if def.Hub == nil {
		return def
	}
	d := *def
	d.Hub = nil
	return &d
}

// fail ends a watch with an error event.
func (w *eventWriter) fail(err error) {
	if errors.Is(err, watch.ErrReloaded) {
		err = apierrors.NewResourceExpired("the watch cannot be continued: " + err.Error())
	}
	inner := *w.encoder
	inner.Format.Shape = encode.Whole
	var buf bytes.Buffer
	if inner.Codec.Append(&buf, inner.Format.Media, apistatus.Of(err)) != nil {
		return
	}
	frame, err := inner.WrapEvent("ERROR", buf.Bytes())
	if err != nil {
		return
	}
	if _, err := w.out.Write(frame); err == nil {
		w.out.Flush()
	}
}

// watchSink is the eventSink of a watch whose events are the body of the answer.
type watchSink struct{ *responsewriter.Writer }

// stateSent lets the client take its time from now on.
func (w watchSink) stateSent() { w.StartStreaming() }

// stateEncoded gives the seat back: at most a piece is left to be sent.
func (w watchSink) stateEncoded() { w.Seat.Free() }

// stream answers a watch, as a WebSocket if the client asks for one.
func (s *Handler) stream(w *responsewriter.Writer, req *http.Request, events *eventWriter) {
	e := events.encoder
	if strings.EqualFold(req.Header.Get("Upgrade"), "websocket") {
		s.streamWebSocket(w, req, events) //nolint:contextcheck // it takes the context of the request
		return
	}
	h := w.Header()
	contentType := e.Format.Media.ContentType()
	if e.Format.Media != codec.JSON {
		contentType += ";stream=watch"
	}
	h.Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
	w.Flush()
	e.Format.Pretty = false
	events.run(req.Context(), watchSink{w})
}
