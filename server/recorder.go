package server

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"proa.dev/server/audit"
	"proa.dev/server/budget"
	"proa.dev/server/fair"
	"proa.dev/server/h2"
)

// recorder is the http.ResponseWriter of all handlers. It remembers the status of an answer, and sends a long answer in pieces
// that the client must take in time.
type recorder struct {
	http.ResponseWriter
	user   string // who asks; the one who authenticated, if that is for another
	code   int
	bytes  int64
	trail  *audit.Trail // nil for none
	lease  budget.Lease // what the answer holds
	held   *bytes.Buffer
	status int // that of an answer which is held back
	seat   seat
	work   fair.Work // the computing of the request
	// lasting says that the client may take its time: it is a watch, or a stream.
	lasting bool
	pace    *pace
	broken  error    // why the rest of the answer cannot be sent
	socket  net.Conn // of HTTP/1.1; nil when it is not known
}

// seat is the place of a request among those that are served at the same time.
type seat struct {
	flow  *fair.Flow // where the request belongs; nil when it takes no seat
	leave func()
	taken atomic.Bool
}

// take takes a seat that must be given back by leave.
func (s *seat) take(leave func()) {
	s.leave = leave
	s.taken.Store(true)
}

// free gives the seat back. It may be called more than once.
func (s *seat) free() {
	if s.taken.Swap(false) {
		s.leave()
	}
}

// contested says that others wait for such a seat.
func (s *seat) contested() bool { return s.taken.Load() && s.flow != nil && s.flow.Contested() }

// hold keeps the beginning of an answer back, until it is more than a piece or send is called. So a handler that does not
// know of seats need not keep one while its answer is sent.
func (r *recorder) hold() {
	r.held = buffers.Get().(*bytes.Buffer)
	r.held.Reset()
}

// send sends what was held back. Its error is in broken.
func (r *recorder) send() {
	held := r.held
	if held == nil {
		return
	}
	r.held = nil
	defer recycle(held)
	r.lease.Shrink(leastHeld + int64(held.Len()))
	if r.status != 0 {
		r.WriteHeader(r.status)
	}
	if held.Len() > 0 {
		_, _ = r.Write(held.Bytes())
	}
}

// WriteHeader remembers the code.
func (r *recorder) WriteHeader(code int) {
	if r.held != nil && code >= http.StatusOK {
		if r.status == 0 {
			r.status = code
		}
		return
	}
	r.code = code
	r.trail.Started(code)
	r.ResponseWriter.WriteHeader(code)
}

// Write sends a part of the answer, and counts its bytes.
func (r *recorder) Write(b []byte) (int, error) {
	if r.held != nil {
		if r.held.Len()+len(b) <= piece {
			return r.held.Write(b)
		}
		r.send()
	}
	if r.broken != nil {
		return 0, r.broken
	}
	if r.code == 0 {
		r.code = http.StatusOK
		r.trail.Started(r.code)
	}
	if r.lasting {
		n, err := r.ResponseWriter.Write(b)
		r.bytes += int64(n)
		return n, err
	}
	return r.writePieces(b)
}

// writePieces sends bytes so that the client must take each piece in time. One piece that nobody else needs is not watched.
func (r *recorder) writePieces(b []byte) (sent int, err error) {
	if r.pace == nil && (r.bytes+int64(len(b)) > piece || r.lease.Scarce()) {
		r.pace = newPace(r)
	}
	for {
		part := b[sent:min(len(b), sent+piece)]
		r.pace.begin()
		n, err := r.ResponseWriter.Write(part)
		r.pace.end()
		r.bytes += int64(n)
		sent += n
		if err != nil {
			r.broken = err
			return sent, err
		}
		if sent >= len(b) {
			return sent, nil
		}
	}
}

// forget drops what was held back.
func (r *recorder) forget() {
	if r.held != nil {
		recycle(r.held)
		r.held, r.status = nil, 0
	}
}

// finish ends what watches over the sending of the answer, and gives back what it holds.
func (r *recorder) finish() {
	r.forget()
	r.work.End()
	r.seat.free()
	r.pace.stop()
	r.lease.Release()
}

// last says that the client may take its time from now on, and that nothing is held for it: the beginning of a watch is sent,
// or a stream begins.
func (r *recorder) last() {
	r.send()
	r.seat.free()
	r.pace.stop()
	r.pace, r.lasting = nil, true
	r.lease.Release()
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Hijack gives the connection to a WebSocket.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r.code = http.StatusSwitchingProtocols
	r.trail.Started(r.code)
	return http.NewResponseController(r.ResponseWriter).Hijack()
}

// Flush sends what was written.
func (r *recorder) Flush() {
	r.send()
	if f, ok := r.ResponseWriter.(http.Flusher); ok {
		r.pace.begin()
		f.Flush()
		r.pace.end()
	}
}

// patience is how long a client may take none of its answer.
func (r *recorder) patience() time.Duration {
	if r.lease.Scarce() || r.seat.contested() {
		return stallContest
	}
	return stallLimit
}

// stalledByClient tells whether a write that is under way waits for the client. When the machine has more to do than it can, the write may wait
// for this server instead, and the client has taken all that it was sent.
func (r *recorder) stalledByClient() bool {
	if w, ok := r.ResponseWriter.(interface{ StalledByClient() bool }); ok {
		return w.StalledByClient()
	}
	return r.socket == nil || h2.SendBufferFull(r.socket)
}

// pace ends an answer when its client does not take it: the seat and the memory that it holds belong to others, too. All methods
// may be called on nil.
type pace struct {
	out   *recorder
	timer *time.Timer

	mu      sync.Mutex // guards what follows
	writing bool
	looked  time.Time     // when check has looked at the write that is under way, or when that began
	stalled time.Duration // for how long that write has waited for the client
	ended   bool
}

func newPace(r *recorder) *pace {
	p := &pace{out: r}
	p.mu.Lock() // check may run at once
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(stallInterval, p.check)
	return p
}

// begin says that a write begins.
func (p *pace) begin() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing, p.looked, p.stalled = true, time.Now(), 0
}

// end says that a write is over.
func (p *pace) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = false
}

// check ends the answer if its client keeps a write waiting for too long. The connection of HTTP/1.1 ends with it, of HTTP/2 only the stream.
func (p *pace) check() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	if p.writing {
		now := time.Now()
		if p.out.stalledByClient() {
			p.stalled += min(now.Sub(p.looked), stallInterval) // it is more when this server was late
		}
		p.looked = now
		if p.stalled >= p.out.patience() {
			_ = http.NewResponseController(p.out.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
			return
		}
	}
	p.timer.Reset(stallInterval)
}

// stop ends the watching.
func (p *pace) stop() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.timer.Stop()
}
