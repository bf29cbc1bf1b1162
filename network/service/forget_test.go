package service

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestForgetter: who writes rules never waits for a pass over the kernel's connections, however long one takes. What is noted
// meanwhile is looked for in the next, UDP streams at once and TCP endpoints after a while, and not too often.
func TestForgetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var passes []string
		var short atomic.Bool
		f := &forgetter{wake: make(chan struct{}, 1)}
		f.look = func(streams []stream, gone openings) {
			passes = append(passes, fmt.Sprintf("%v: %d streams, %d endpoints", time.Since(start), len(streams), len(gone)))
			if !short.Load() {
				time.Sleep(5 * time.Second) // a node with very many connections
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { f.run(ctx) })
		note := func(streams, endpoints int) {
			before := time.Now()
			gone := openings{}
			for i := range endpoints {
				gone[netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80)] = true
			}
			f.note(make([]stream, streams), gone)
			if waited := time.Since(before); waited != 0 {
				t.Errorf("the rules have waited for %v", waited)
			}
		}
		note(0, 1)
		synctest.Wait()
		note(0, 2) // one of them is the same
		time.Sleep(2 * time.Second)
		note(3, 0) // while the first pass goes on
		note(1, 1)
		time.Sleep(time.Minute)
		note(1, 0)
		time.Sleep(time.Minute)
		short.Store(true)
		for range 8 { // a rollout
			note(0, 1)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		cancel()
		wg.Wait()
		want := "1s: 0 streams, 2 endpoints, 16s: 4 streams, 1 endpoints, 1m2s: 1 streams, 0 endpoints, 2m3s: 0 streams, 1 endpoints, 2m8s: 0 streams, 1 endpoints, 2m13s: 0 streams, 1 endpoints"
		if got := strings.Join(passes, ", "); got != want {
			t.Errorf("passes at %s\nwant %s", got, want)
		}
	})
}
