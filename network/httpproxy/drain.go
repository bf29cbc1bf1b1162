package httpproxy

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// Drain lets the requests of all proxies of a process finish when another process takes their ports over. The zero value is ready; nil
// counts nothing.
type Drain struct {
	began  atomic.Bool
	active atomic.Int64
}

// begin counts a request or a stream until done is called. Once the process is to end, the answer of a request asks the client to close
// its connection, or to open no more streams on it.
func (d *Drain) begin(h http.Header) (done func()) {
	if d == nil {
		return func() {}
	}
	d.active.Add(1)
	if d.began.Load() && h != nil {
		h.Set("Connection", "close")
	}
	return func() { d.active.Add(-1) }
}

// drainCheckPeriod is how often Wait looks whether requests are in flight.
const drainCheckPeriod = 20 * time.Millisecond

// Wait asks clients to close their connections, waits for linger, in which clients may use the connections that they keep, and then until
// no request is in flight or ctx ends.
func (d *Drain) Wait(ctx context.Context, linger time.Duration) {
	d.began.Store(true)
	until := time.Now().Add(linger)
	tick := time.NewTicker(drainCheckPeriod)
	defer tick.Stop()
	for time.Now().Before(until) || d.active.Load() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
