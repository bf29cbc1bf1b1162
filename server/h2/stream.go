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
)

// stream is one request with its answer. The lock of its connection guards it.
type stream struct {
	conn    *conn
	id      uint32
	req     *http.Request
	handler http.Handler
	body    *body // nil when there is none
	cancel  context.CancelFunc

	window  int64      // what the peer takes
	changed *sync.Cond // the window or the fate of the stream has
	failed  error      // why it ended early
	asked   bool       // the request is complete
	replied bool       // the answer is
	begun   bool       // its handler has been called, or waits to be
	running bool       // its handler has been called

	cost     int       // what its header counts in the memory of the connection
	since    time.Time // when it came, if its body is being collected
	stalled  time.Time // since when the client takes nothing of the answer; zero while it does
	lasting  bool      // the client may take nothing of the answer for as long as it likes
	starving bool      // it waits for the window of the connection
	data     int64     // the socket has taken all that was said so far when it has taken so many bytes of the connection
}

// wake lets those look again who wait for the window, or the body.
func (st *stream) wake() {
	if st.changed != nil {
		st.changed.Broadcast()
	}
}

// await waits for wake. The lock is held.
func (st *stream) await() {
	if st.changed == nil {
		st.changed = sync.NewCond(&st.conn.mu)
	}
	st.changed.Wait()
}

// drop takes a stream away before its time.
func (c *conn) drop(st *stream, why error) {
	if st.failed == nil {
		st.failed = why
	}
	delete(c.streams, st.id)
	if st.body != nil {
		st.body.abandon()
	}
	if !st.running { // nobody will look at it again
		c.release(st)
		st.req, st.body = nil, nil
	}
	st.cancel()
	st.wake()
	c.out.room.Broadcast()
	c.used = time.Now()
}

// forget takes a stream away that both sides have done with.
func (c *conn) forget(st *stream) {
	if st.asked && st.replied && c.streams[st.id] == st {
		delete(c.streams, st.id)
		c.used = time.Now()
	}
}

// takeHeaders reads the head of a request, or the trailer of one.
func (c *conn) takeHeaders(f frame, p []byte) error {
	if f.stream%2 == 0 {
		return breach(protocolError, "a request on a stream that is not a client's")
	}
	p, err := unpad(f, p)
	if err != nil {
		return err
	}
	selfish := false
	if f.has(flagPriority) {
		if len(p) < 5 {
			return breach(frameSizeError, "a priority of another size")
		}
		selfish = uint32(p[0]&0x7f)<<24|uint32(p[1])<<16|uint32(p[2])<<8|uint32(p[3]) == f.stream
		p = p[5:]
	}
	c.head = newHead(c.Header)
	if err := c.fields(f, p); err != nil {
		return err
	}
	h := c.head
	c.head = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.streams[f.stream]; st != nil {
		return c.trailer(st, f, h)
	}
	if f.stream <= c.lastSeen {
		if err := c.nuisance.add(costOfFrame); err != nil {
			return err
		}
		if !c.lately(f.stream) {
			return breach(streamClosed, "fields on a stream that has ended")
		}
		return c.refuse(f.stream, streamClosed)
	}
	if c.leaving {
		return nil // it was told that this is not answered
	}
	c.lastSeen = f.stream
	why := noError
	switch {
	case selfish:
		why = protocolError
	case len(c.streams) >= c.Streams, c.headers > 0 && c.headers+h.cost > c.headerLimit():
		why = refusedStream // the client may try again when it has fewer requests under way
	default:
		return c.open(f, h)
	}
	if err := c.nuisance.add(costOfFrame); err != nil {
		return err
	}
	return c.refuse(f.stream, why)
}

// fields reads a block of fields, which may come in several frames with nothing between them.
func (c *conn) fields(f frame, p []byte) error {
	if f.has(flagEndHeaders) {
		return c.decode(p)
	}
	block, err := c.collect(f, p)
	if err != nil {
		return err
	}
	if err := c.decode(block); err != nil {
		return err
	}
	// The decoder keeps the last block that it was given. A field of the static table, which nobody sees, takes its place.
	c.decoder.SetEmitEnabled(false)
	if _, err := c.decoder.Write([]byte{0x82}); err != nil {
		return breach(compressionError, err.Error())
	}
	return c.decoder.Close()
}

// decode reads a complete block of fields into the head of the connection.
func (c *conn) decode(block []byte) error {
	c.decoder.SetEmitEnabled(true)
	if _, err := c.decoder.Write(block); err != nil {
		return breach(compressionError, err.Error())
	}
	if err := c.decoder.Close(); err != nil {
		return breach(compressionError, err.Error())
	}
	return nil
}

// collect puts a block of fields together that comes in several frames. The decoder gets it as a whole: it would keep room for the longest
// string that was cut, as long as the connection lives.
func (c *conn) collect(f frame, p []byte) ([]byte, error) {
	c.expect(time.Now().Add(c.Greeting))
	defer func() {
		c.expect(time.Time{})
		c.holdPartial(0)
	}()
	var block chunks // many clients may have one that does not end, so it leaves no garbage while it grows
	defer block.drop()
	block.add(p)
	for n := 2; !f.has(flagEndHeaders); n++ {
		c.holdPartial(block.capacity())
		next, p, err := c.frame()
		if err != nil {
			return nil, err
		}
		if next.kind != frameContinuation || next.stream != f.stream {
			return nil, breach(protocolError, "the fields of a request are interrupted")
		}
		if block.size+len(p) > 2*c.Header || n > mostFragments {
			return nil, breach(enhanceYourCalm, "the fields of a request are too many")
		}
		block.add(p)
		f = next
	}
	return block.all(), nil
}

// holdPartial notes what the connection holds of a header that is not complete.
func (c *conn) holdPartial(size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partialHeader = size
	c.account()
}

// open begins a stream. The lock is held.
func (c *conn) open(f frame, h *head) error {
	if c.failed != nil {
		return c.failed
	}
	ctx, cancel := context.WithCancel(c.ctx)
	st := &stream{conn: c, id: f.stream, window: c.out.initial, cancel: cancel, asked: f.has(flagEndStream)}
	req, err := h.request(ctx, c.remote, c.secured)
	if err != nil || st.asked && h.length > 0 {
		cancel()
		if err := c.nuisance.add(costOfFrame); err != nil {
			return err
		}
		return c.refuse(f.stream, protocolError)
	}
	c.nuisance.forgive()
	st.req, st.handler, st.cost = req, c.handler, h.cost
	c.headers += st.cost
	if h.wide {
		st.handler = http.HandlerFunc(tooWide)
	}
	shy := httpguts.HeaderValuesContainsToken(req.Header["Expect"], "100-continue")
	if st.asked {
		req.Body, req.ContentLength = http.NoBody, 0
	} else {
		st.body = newBody(st, h.length, shy)
		req.Body = st.body
	}
	c.streams[st.id] = st
	if st.body != nil && st.body.small && !shy {
		st.since = time.Now()
		c.lookAt(st.since.Add(collectTime))
		c.account()
		return nil // it begins when the body is here, or does not come
	}
	return c.begin(st)
}

// begin calls the handler of a stream, or lets it wait for others to end. The lock is held.
func (c *conn) begin(st *stream) error {
	st.begun = true
	if st.body != nil {
		c.collecting -= st.body.chunks.size
	}
	if c.running < c.Streams {
		c.running++
		st.running = true
		c.account()
		if c.resting == nil {
			go c.work(st)
			return nil
		}
		c.resting <- st
		c.resting = nil
		return nil
	}
	// There can only be this many when the client has ended streams whose handlers still run.
	if len(c.queue) >= 4*c.Streams {
		return breach(enhanceYourCalm, "requests are ended faster than they are served")
	}
	c.queue = append(c.queue, st)
	return nil
}

// work runs the handlers of a stream, of those that wait, and then of those that come, unless another does that.
func (c *conn) work(st *stream) {
	rest := make(chan *stream, 1)
	for st != nil {
		c.handle(st)
		c.mu.Lock()
		st = c.next()
		rests := st == nil && c.resting == nil && c.failed == nil
		if rests {
			c.resting = rest
		}
		c.mu.Unlock()
		if rests {
			st = <-rest
		}
	}
}

// next is a request that waits for a handler to end; nil when there is none.
func (c *conn) next() *stream {
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

// handle serves one request.
func (c *conn) handle(st *stream) {
	w := &response{conn: c, st: st, header: make(http.Header, 8), length: -1}
	defer func() {
		if p := recover(); p != nil {
			if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				c.Log.Error("a request failed unexpectedly", "path", st.req.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			}
			w.abort()
		}
	}()
	st.handler.ServeHTTP(w, st.req)
	w.finish()
}

// takeData takes a piece of a body.
func (c *conn) takeData(f frame, p []byte) error {
	p, err := unpad(f, p)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.stream == 0 || c.unopened(f.stream) {
		return breach(protocolError, "data of a stream that is not open")
	}
	if !c.upload.take(f.size) {
		return breach(flowControlError, "more data than there is room for")
	}
	if len(p) == 0 && !f.has(flagEndStream) {
		if err := c.nuisance.add(costOfFrame); err != nil {
			return err
		}
	}
	st := c.streams[f.stream]
	if st == nil {
		c.refund(nil, f.size)
		if err := c.nuisance.add(costOfFrame); err != nil {
			return err
		}
		if c.lately(f.stream) || f.stream > c.lastSeen {
			return c.poke() // it knows, or will
		}
		return c.refuse(f.stream, streamClosed)
	}
	if st.asked {
		c.refund(nil, f.size)
		c.abort(st, streamClosed)
		return c.poke()
	}
	if !st.body.inflow.take(f.size) {
		c.refund(nil, f.size)
		c.abort(st, flowControlError)
		return c.poke()
	}
	c.refund(st, f.size-len(p)) // the padding is not read
	if !st.body.add(p) {
		c.refund(nil, len(p))
		c.abort(st, protocolError)
		return c.poke()
	}
	if f.has(flagEndStream) {
		return c.complete(st, nil)
	}
	if c.collecting > c.upload.size/2 {
		c.startAll()
	}
	return c.poke()
}

// trailer ends a body with fields.
func (c *conn) trailer(st *stream, f frame, h *head) error {
	if st.asked {
		c.abort(st, streamClosed)
		return c.poke()
	}
	if !f.has(flagEndStream) || h.bad != "" || h.wide || h.pseudos != 0 {
		c.abort(st, protocolError)
		return c.poke()
	}
	if c.headers+h.cost > c.headerLimit() && len(h.header) > 0 {
		c.abort(st, enhanceYourCalm)
		return c.poke()
	}
	st.cost += h.cost
	c.headers += h.cost
	return c.complete(st, h.header)
}

// complete says that a request is here as a whole.
func (c *conn) complete(st *stream, trailer http.Header) error {
	st.asked = true
	if !st.body.end(trailer) {
		c.abort(st, protocolError)
		return c.poke()
	}
	c.forget(st)
	if !st.begun {
		return c.begin(st)
	}
	return nil
}

// tooWide answers a request whose fields are more than a server reads.
func tooWide(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "431 "+http.StatusText(http.StatusRequestHeaderFieldsTooLarge), http.StatusRequestHeaderFieldsTooLarge)
}
