package h2

import (
	"os"
	"slices"
	"time"
)

const (
	// collectTime is how long a small body may take before its handler starts without the rest of it. The handler authenticates the
	// request, and waits for the rest only if it wants it.
	collectTime = time.Second
	// stall is how long a client may take nothing of an answer before its stream is reset, and strangerStall is that of a connection
	// on which no request has been authenticated.
	stall         = 2 * time.Minute
	strangerStall = 15 * time.Second
	// smallAnswer is the size up to which an answer that the client does not take at once is kept for its handler, so that it returns.
	smallAnswer = 64 << 10
	// handOverTime is how long a handler whose deadline has passed may be kept by a write of its connection that is under way.
	handOverTime = 5 * time.Second
)

// watchdog is the one timer of a connection that looks after its streams: those whose bodies do not come, and those whose answers are not
// taken. The lock of the connection guards it.
type watchdog struct {
	timer *time.Timer
	at    time.Time // when it looks next; zero for never
}

func (w *watchdog) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// lookAt has the watchdog look at a time, if it does not look earlier. The lock is held.
func (c *conn) lookAt(at time.Time) {
	if !c.watch.at.IsZero() && !at.Before(c.watch.at) {
		return
	}
	c.watch.at = at
	if d := time.Until(at); c.watch.timer == nil {
		c.watch.timer = time.AfterFunc(d, c.look)
	} else {
		c.watch.timer.Reset(d)
	}
}

// look starts the handlers of bodies that take too long, and ends streams whose answers nobody takes.
func (c *conn) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch.at = time.Time{}
	if c.failed != nil {
		return
	}
	now, limit := time.Now(), c.stallLimit()
	for _, st := range c.streams {
		switch {
		case !st.begun && now.Sub(st.since) >= collectTime:
			c.start(st)
		case !st.begun:
			c.lookAt(st.since.Add(collectTime))
		case st.stalled.IsZero():
		case now.Sub(st.stalled) >= limit:
			c.expire(st, enhanceYourCalm)
		default:
			c.lookAt(st.stalled.Add(limit))
		}
	}
	c.call()
}

// start calls the handler of a stream whose body is not here yet. The lock is held.
func (c *conn) start(st *stream) {
	if c.begin(st) != nil {
		c.abort(st, refusedStream)
	}
}

// startAll starts the handlers of all requests whose bodies are being collected, so that somebody reads them: they hold so much of the
// window that others wait for it. The lock is held.
func (c *conn) startAll() {
	for _, st := range c.streams {
		if !st.begun {
			c.start(st)
		}
	}
}

// expire ends a stream because its time is over. A handler that waits for the client returns at once, and one that sends for its connection
// soon. The lock is held.
func (c *conn) expire(st *stream, why code) {
	if st.failed != nil || st.replied {
		return
	}
	st.failed = os.ErrDeadlineExceeded
	if c.out.sender == st {
		_ = c.socket.SetWriteDeadline(time.Now().Add(handOverTime))
	}
	c.abort(st, why)
}

// stalls notes since when a stream waits for its client. The lock is held.
func (c *conn) stalls(st *stream) {
	if st.stalled.IsZero() && !st.lasting {
		st.stalled = time.Now()
		c.lookAt(st.stalled.Add(c.stallLimit()))
	}
}

// stalledByClient tells whether an answer waits for its client, and not for this server, which may lack the processor: the client takes nothing
// more of what was sent to it, or has taken all of it and opens no window for more. The lock is held.
func (c *conn) stalledByClient(st *stream) bool {
	o := &c.out
	return o.writing && SendBufferFull(c.socket) || st.window <= 0 && o.sent >= st.data || o.window <= 0 && o.sent >= o.data
}

// awaitWindow waits until the client takes more of a stream, or the stream ends. Streams that only lack the window of the connection are
// woken in the order in which they came. The lock is held, but not all the time.
func (c *conn) awaitWindow(st *stream) {
	c.stalls(st)
	c.account()
	if st.window > 0 && !st.starving {
		st.starving = true
		c.out.starving = append(c.out.starving, st)
	}
	st.await()
	c.unstarve(st)
}

// unstarve takes a stream out of those that wait for the window of the connection.
func (c *conn) unstarve(st *stream) {
	if !st.starving {
		return
	}
	st.starving = false
	if i := slices.Index(c.out.starving, st); i >= 0 {
		c.out.starving = slices.Delete(c.out.starving, i, i+1)
	}
}

// pass lets the next stream go on that waits for the window of the connection, if there is any window. Whoever takes a part of the window,
// or was woken and does not need it, passes the rest on. The lock is held.
func (c *conn) pass() {
	if c.out.window > 0 && len(c.out.starving) > 0 {
		c.out.starving[0].wake()
	}
}
