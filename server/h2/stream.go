package h2

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"proa.dev/server/h2/chunkbuffer"
	"proa.dev/server/h2/h2wire"
)

// stream is one request with its response. The lock of its connection guards it.
type stream struct {
	conn    *conn
	id      uint32
	req     *http.Request
	handler http.Handler
	body    *body // nil when the request has none
	cancel  context.CancelFunc

	window       int64      // the flow-control window of the response
	changed      *sync.Cond // signals that the window, the body or the state of the stream has changed
	failed       error      // why it ended early
	requestDone  bool       // the request has been received completely
	responseDone bool       // the response has been sent completely
	dispatched   bool       // its handler has been called, or waits to be
	running      bool       // its handler has been called

	cost             int       // what its header counts in the memory of the connection
	collectingSince  time.Time // when its body began to be collected
	stalled          time.Time // since when the client reads nothing of the response; zero while it does
	mayPause         bool      // the client may pause for as long as it likes
	waitingForWindow bool      // it waits for the window of the connection
	// when the socket has accepted this many bytes of the connection, it has accepted all DATA frames of the stream so far
	dataEnd int64
}

// wake wakes the goroutines that wait for the window, or for the body.
func (st *stream) wake() {
	if st.changed != nil {
		st.changed.Broadcast()
	}
}

// await waits for wake. The lock is held, but not while it waits.
func (st *stream) await() {
	if st.changed == nil {
		st.changed = sync.NewCond(&st.conn.mu)
	}
	st.changed.Wait()
}

// drop removes a stream before it is complete.
func (c *conn) drop(st *stream, why error) {
	if st.failed == nil {
		st.failed = why
	}
	delete(c.streams, st.id)
	if st.body != nil {
		st.body.discard()
	}
	if !st.running { // no handler will use it
		c.release(st)
		st.req, st.body = nil, nil
	}
	st.cancel()
	st.wake()
	c.out.hasRoom.Broadcast()
	c.streamEnded()
}

// streamEnded records when the connection has become idle. The lock is held.
func (c *conn) streamEnded() {
	if c.lastUsed = time.Now(); len(c.streams) == 0 {
		c.limited.SetIdle(c.lastUsed)
	}
}

// removeIfDone removes a stream whose request and response are both complete.
func (c *conn) removeIfDone(st *stream) {
	if st.requestDone && st.responseDone && c.streams[st.id] == st {
		delete(c.streams, st.id)
		c.streamEnded()
	}
}

// handleHeaders handles the header of a request, or its trailer.
func (c *conn) handleHeaders(f h2wire.Frame, p []byte) error {
	if f.Stream%2 == 0 {
		return h2wire.NewError(h2wire.ProtocolError, "HEADERS on a stream with an even number")
	}
	p, err := h2wire.Unpad(f, p)
	if err != nil {
		return err
	}
	selfish := false
	if f.Has(h2wire.FlagPriority) {
		if len(p) < 5 {
			return h2wire.NewError(h2wire.FrameSizeError, "a priority of a wrong size")
		}
		selfish = uint32(p[0]&0x7f)<<24|uint32(p[1])<<16|uint32(p[2])<<8|uint32(p[3]) == f.Stream
		p = p[5:]
	}
	c.header = h2wire.NewHeaderList(c.Header)
	if err := c.readFields(f, p); err != nil {
		return err
	}
	h := c.header
	c.header = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.streams[f.Stream]; st != nil {
		return c.handleTrailer(st, f, h)
	}
	if f.Stream <= c.lastStream {
		if err := c.abuse.add(costOfFrame); err != nil {
			return err
		}
		if !c.wasRecentlyReset(f.Stream) {
			return h2wire.NewError(h2wire.StreamClosed, "HEADERS on a stream that has ended")
		}
		return c.sendReset(f.Stream, h2wire.StreamClosed)
	}
	if c.goingAway {
		return nil // it was told that this stream is not answered
	}
	c.lastStream = f.Stream
	var why h2wire.ErrorCode
	switch {
	case selfish:
		why = h2wire.ProtocolError
	case len(c.streams) >= c.Streams, c.headers > 0 && c.headers+h.Cost > c.headerLimit():
		why = h2wire.RefusedStream // the client may retry when it has fewer requests in flight
	default:
		return c.open(f, h)
	}
	if err := c.abuse.add(costOfFrame); err != nil {
		return err
	}
	return c.sendReset(f.Stream, why)
}

// readFields decodes a field block, which may come in several frames with nothing between them.
func (c *conn) readFields(f h2wire.Frame, p []byte) error {
	if f.Has(h2wire.FlagEndHeaders) {
		return c.decode(p)
	}
	block, err := c.collect(f, p)
	if err != nil {
		return err
	}
	if err := c.decode(block); err != nil {
		return err
	}
	// The HPACK decoder keeps the last block that it was given. A field of the static table takes its place.
	c.decoder.SetEmitEnabled(false)
	if _, err := c.decoder.Write([]byte{0x82}); err != nil {
		return h2wire.NewError(h2wire.CompressionError, err.Error())
	}
	return c.decoder.Close()
}

// decode decodes a complete field block into the header list of the connection.
func (c *conn) decode(block []byte) error {
	c.decoder.SetEmitEnabled(true)
	if _, err := c.decoder.Write(block); err != nil {
		return h2wire.NewError(h2wire.CompressionError, err.Error())
	}
	if err := c.decoder.Close(); err != nil {
		return h2wire.NewError(h2wire.CompressionError, err.Error())
	}
	return nil
}

// collect joins a field block that comes in several frames. The decoder gets it as a whole: it would otherwise keep a
// buffer for the longest string that was cut for as long as the connection lives.
func (c *conn) collect(f h2wire.Frame, p []byte) ([]byte, error) {
	c.setReadDeadline(time.Now().Add(c.Greeting))
	defer func() {
		c.setReadDeadline(time.Time{})
		c.holdPartial(0)
	}()
	var block chunkbuffer.Buffer // many clients may have one that does not end, so it must leave no garbage while it grows
	defer block.Drop()
	block.Add(p)
	for n := 2; !f.Has(h2wire.FlagEndHeaders); n++ {
		c.holdPartial(block.Capacity())
		next, p, err := c.readFrame()
		if err != nil {
			return nil, err
		}
		if next.Type != h2wire.FrameContinuation || next.Stream != f.Stream {
			return nil, h2wire.NewError(h2wire.ProtocolError, "a field block is interrupted by another frame")
		}
		if block.Size+len(p) > 2*c.Header || n > maxFragments {
			return nil, h2wire.NewError(h2wire.EnhanceYourCalm, "a field block is too long")
		}
		block.Add(p)
		f = next
	}
	return block.All(), nil
}

// holdPartial records how many bytes the connection holds of a header that is not complete.
func (c *conn) holdPartial(size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partialHeader = size
	c.account()
}

// open starts a stream. The lock is held.
func (c *conn) open(f h2wire.Frame, h *h2wire.HeaderList) error {
	if c.failed != nil {
		return c.failed
	}
	ctx, cancel := context.WithCancel(c.ctx)
	st := &stream{conn: c, id: f.Stream, window: c.out.initialWindow, cancel: cancel, requestDone: f.Has(h2wire.FlagEndStream)}
	req, err := h.Request(ctx, c.remote, c.secured)
	if err != nil || st.requestDone && h.Length > 0 {
		cancel()
		if err := c.abuse.add(costOfFrame); err != nil {
			return err
		}
		return c.sendReset(f.Stream, h2wire.ProtocolError)
	}
	c.abuse.forgive()
	st.req, st.handler, st.cost = req, c.handler, h.Cost
	c.headers += st.cost
	if h.TooLarge {
		st.handler = http.HandlerFunc(rejectHeader)
	}
	shy := httpguts.HeaderValuesContainsToken(req.Header["Expect"], "100-continue")
	if st.requestDone {
		req.Body, req.ContentLength = http.NoBody, 0
	} else {
		st.body = newBody(st, h.Length, shy)
		req.Body = st.body
	}
	if len(c.streams) == 0 {
		c.limited.SetIdle(time.Time{})
	}
	c.streams[st.id] = st
	if st.body != nil && st.body.small && !shy {
		st.collectingSince = time.Now()
		c.checkStreamsAt(st.collectingSince.Add(collectTime))
		c.account()
		return nil // its handler starts when the body is complete, or takes too long
	}
	return c.startHandler(st)
}

// startHandler starts the handler of a stream, or queues it until another handler ends. The lock is held.
func (c *conn) startHandler(st *stream) error {
	st.dispatched = true
	if st.body != nil {
		c.collecting -= st.body.chunks.Size
	}
	if c.running < c.Streams {
		c.running++
		st.running = true
		c.account()
		if c.idleWorker == nil {
			go c.runHandlers(st)
			return nil
		}
		c.idleWorker <- st
		c.idleWorker = nil
		return nil
	}
	// There can be so many only when the client has reset streams whose handlers still run.
	if len(c.queue) >= 4*c.Streams {
		return h2wire.NewError(h2wire.EnhanceYourCalm, "requests are reset faster than they are served")
	}
	c.queue = append(c.queue, st)
	return nil
}

// runHandlers runs the handler of a stream, then those of the queued streams. After that it waits for further streams,
// unless another goroutine of the connection waits for them.
func (c *conn) runHandlers(st *stream) {
	rest := make(chan *stream, 1)
	for st != nil {
		c.handle(st)
		c.mu.Lock()
		st = c.nextQueued()
		rests := st == nil && c.idleWorker == nil && c.failed == nil
		if rests {
			c.idleWorker = rest
		}
		c.mu.Unlock()
		if rests {
			st = <-rest
		}
	}
}

// nextQueued returns a stream that was queued until a handler ends; nil when there is none.
func (c *conn) nextQueued() *stream {
	for len(c.queue) > 0 {
		st := c.queue[0]
		c.queue = c.queue[1:]
		if st.failed == nil {
			st.running = true
			return st
		}
	}
	c.running--
	c.account()
	return nil
}

// handle runs the handler of one request.
func (c *conn) handle(st *stream) {
	w := &response{conn: c, st: st, header: make(http.Header, 8), length: -1}
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				c.Log.Error("a request failed unexpectedly", "path", st.req.URL.Path, "panic", fmt.Sprint(p), "stack",
					string(debug.Stack()))
			}
			w.abort()
		}
	}()
	st.handler.ServeHTTP(w, st.req)
	w.finish()
}

// handleData handles a piece of a request body.
func (c *conn) handleData(f h2wire.Frame, p []byte) error {
	p, err := h2wire.Unpad(f, p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.Stream == 0 || c.isUnopened(f.Stream) {
		return h2wire.NewError(h2wire.ProtocolError, "DATA of a stream that is not open")
	}
	if !c.bodies.consume(f.Size) {
		return h2wire.NewError(h2wire.FlowControlError, "more data than the window allows")
	}
	if len(p) == 0 && !f.Has(h2wire.FlagEndStream) {
		if err := c.abuse.add(costOfFrame); err != nil {
			return err
		}
	}
	st := c.streams[f.Stream]
	if st == nil {
		c.restoreWindow(nil, f.Size)
		if err := c.abuse.add(costOfFrame); err != nil {
			return err
		}
		if c.wasRecentlyReset(f.Stream) || f.Stream > c.lastStream {
			return c.flushFromReader() // the client knows that the stream has ended, or will learn it
		}
		return c.sendReset(f.Stream, h2wire.StreamClosed)
	}
	if st.requestDone {
		c.restoreWindow(nil, f.Size)
		c.resetStream(st, h2wire.StreamClosed)
		return c.flushFromReader()
	}
	if !st.body.window.consume(f.Size) {
		c.restoreWindow(nil, f.Size)
		c.resetStream(st, h2wire.FlowControlError)
		return c.flushFromReader()
	}
	c.restoreWindow(st, f.Size-len(p)) // the padding is not read
	if !st.body.add(p) {
		c.restoreWindow(nil, len(p))
		c.resetStream(st, h2wire.ProtocolError)
		return c.flushFromReader()
	}
	if f.Has(h2wire.FlagEndStream) {
		return c.completeRequest(st, nil)
	}
	if c.collecting > c.bodies.size/2 {
		c.startAllCollecting()
	}
	return c.flushFromReader()
}

// handleTrailer ends a request body with trailer fields.
func (c *conn) handleTrailer(st *stream, f h2wire.Frame, h *h2wire.HeaderList) error {
	if st.requestDone {
		c.resetStream(st, h2wire.StreamClosed)
		return c.flushFromReader()
	}
	if !f.Has(h2wire.FlagEndStream) || h.Problem != "" || h.TooLarge || h.Pseudos != 0 {
		c.resetStream(st, h2wire.ProtocolError)
		return c.flushFromReader()
	}
	if c.headers+h.Cost > c.headerLimit() && len(h.Header) > 0 {
		c.resetStream(st, h2wire.EnhanceYourCalm)
		return c.flushFromReader()
	}
	st.cost += h.Cost
	c.headers += h.Cost
	return c.completeRequest(st, h.Header)
}

// completeRequest records that a request has been received completely.
func (c *conn) completeRequest(st *stream, trailer http.Header) error {
	st.requestDone = true
	if !st.body.end(trailer) {
		c.resetStream(st, h2wire.ProtocolError)
		return c.flushFromReader()
	}
	c.removeIfDone(st)
	if !st.dispatched {
		return c.startHandler(st)
	}
	return nil
}

// rejectHeader answers a request whose header list is too large.
func rejectHeader(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "431 "+http.StatusText(http.StatusRequestHeaderFieldsTooLarge), http.StatusRequestHeaderFieldsTooLarge)
}
