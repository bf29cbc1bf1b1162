package h2

import (
	"os"
	"slices"
	"time"

	"proa.dev/server/h2/h2wire"
)

const (
	// collectTime is how long a small body may take before its handler starts without the rest of it. The handler
	// authenticates the request, and waits for the rest only if it wants it.
	collectTime = time.Second
	// stallTimeout is how long a client may read nothing of a response before its stream is reset, and
	// unauthenticatedStallTimeout the same on a connection on which no request has been authenticated.
	stallTimeout                = 2 * time.Minute
	unauthenticatedStallTimeout = 15 * time.Second
	// smallAnswer is the size up to which a response that the client does not accept at once is kept, so that its
	// handler can return.
	smallAnswer = 64 << 10
	// handOverTime is how long a handler whose deadline has passed may be held up by a write to the socket that is in
	// progress.
	handOverTime = 5 * time.Second
)

// watchdog is the one timer of a connection that checks its streams: those whose bodies do not arrive, and those whose
// responses are not read. The lock of the connection guards it.
type watchdog struct {
	timer *time.Timer
	at    time.Time // when it fires next; zero for never
}

func (w *watchdog) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// checkStreamsAt has the watchdog fire at that time or earlier. The lock is held.
func (c *conn) checkStreamsAt(at time.Time) {
	if !c.watchdog.at.IsZero() && !at.Before(c.watchdog.at) {
		return
	}
	c.watchdog.at = at
	if d := time.Until(at); c.watchdog.timer == nil {
		c.watchdog.timer = time.AfterFunc(d, c.checkStreams)
	} else {
		c.watchdog.timer.Reset(d)
	}
}

// checkStreams starts the handlers of bodies that take too long, and resets streams whose responses nobody reads.
func (c *conn) checkStreams() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchdog.at = time.Time{}
	if c.failed != nil {
		return
	}
	now, limit := time.Now(), c.stallLimit()
	for _, st := range c.streams {
		switch {
		case !st.dispatched && now.Sub(st.collectingSince) >= collectTime:
			c.startWithoutBody(st)
		case !st.dispatched:
			c.checkStreamsAt(st.collectingSince.Add(collectTime))
		case st.stalled.IsZero():
		case now.Sub(st.stalled) >= limit:
			c.expire(st, h2wire.EnhanceYourCalm)
		default:
			c.checkStreamsAt(st.stalled.Add(limit))
		}
	}
	c.startWriter()
}

// startWithoutBody starts the handler of a stream whose body is not complete. The lock is held.
func (c *conn) startWithoutBody(st *stream) {
	if c.startHandler(st) != nil {
		c.resetStream(st, h2wire.RefusedStream)
	}
}

// startAllCollecting starts the handlers of all requests whose bodies are being collected, because these bodies use up
// so much of the window that other streams wait for it. The lock is held.
func (c *conn) startAllCollecting() {
	for _, st := range c.streams {
		if !st.dispatched {
			c.startWithoutBody(st)
		}
	}
}

// expire ends a stream because its time is over. A handler that waits for the client returns at once, and one that is
// writing to the socket soon. The lock is held.
func (c *conn) expire(st *stream, why h2wire.ErrorCode) {
	if st.failed != nil || st.responseDone {
		return
	}
	st.failed = os.ErrDeadlineExceeded
	if c.out.sender == st {
		_ = c.socket.SetWriteDeadline(time.Now().Add(handOverTime))
	}
	c.resetStream(st, why)
}

// markStalled records since when a stream waits for its client. The lock is held.
func (c *conn) markStalled(st *stream) {
	if st.stalled.IsZero() && !st.mayPause {
		st.stalled = time.Now()
		c.checkStreamsAt(st.stalled.Add(c.stallLimit()))
	}
}

// stalledByClient reports whether a response waits for its client, and not for this server, which may be short of CPU
// time: either the client reads nothing more of what was sent, or it has received all of it and opens no window for
// more. The lock is held.
func (c *conn) stalledByClient(st *stream) bool {
	o := &c.out
	return o.writing && SendBufferFull(c.socket) || st.window <= 0 && o.sent >= st.dataEnd || o.window <= 0 && o.sent >= o.dataEnd
}

// awaitWindow waits until the client accepts more of a stream, or the stream ends. Streams that only lack the window of
// the connection are woken in the order in which they came. The lock is held, but not while it waits.
func (c *conn) awaitWindow(st *stream) {
	c.markStalled(st)
	c.account()
	if st.window > 0 && !st.waitingForWindow {
		st.waitingForWindow = true
		c.out.waiting = append(c.out.waiting, st)
	}
	st.await()
	c.stopWaiting(st)
}

// stopWaiting takes a stream off the list of those that wait for the window of the connection.
func (c *conn) stopWaiting(st *stream) {
	if !st.waitingForWindow {
		return
	}
	st.waitingForWindow = false
	if i := slices.Index(c.out.waiting, st); i >= 0 {
		c.out.waiting = slices.Delete(c.out.waiting, i, i+1)
	}
}

// wakeNextWaiting wakes the next stream that waits for the window of the connection, if there is any window. A stream
// that takes a part of the window, or was woken and does not need it, wakes the next one with this. The lock is held.
func (c *conn) wakeNextWaiting() {
	if c.out.window > 0 && len(c.out.waiting) > 0 {
		c.out.waiting[0].wake()
	}
}
