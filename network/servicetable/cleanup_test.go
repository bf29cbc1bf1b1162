package servicetable

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

	"proa.dev/network/conntrack"
)

// TestCleaner checks that adding endpoints never waits for a pass over the connection table, however long that takes.
// What is added meanwhile is handled by the next pass: UDP at once, TCP after a delay and with a minimum interval.
func TestCleaner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var passes []string
		var short atomic.Bool
		c := &cleaner{}
		c.Cleaner = conntrack.NewCleaner(c.pass, c.due)
		c.clean = func(udp []udpTarget, tcp removedTCP) {
			passes = append(passes, fmt.Sprintf("%v: %d UDP ports, %d endpoints", time.Since(start), len(udp), len(tcp)))
			if !short.Load() {
				time.Sleep(5 * time.Second) // a node with very many connections
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { c.Run(ctx) })
		add := func(ports, endpoints int) {
			before := time.Now()
			removed := removedTCP{}
			for i := range endpoints {
				removed[netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80)] = true
			}
			c.add(make([]udpTarget, ports), removed)
			if waited := time.Since(before); waited != 0 {
				t.Errorf("add waited for %v", waited)
			}
		}
		add(0, 1)
		synctest.Wait()
		add(0, 2) // one of them was added before
		time.Sleep(2 * time.Second)
		add(3, 0) // while the first pass is running
		add(1, 1)
		time.Sleep(time.Minute)
		add(1, 0)
		time.Sleep(time.Minute)
		short.Store(true)
		for range 8 { // a rollout
			add(0, 1)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		cancel()
		wg.Wait()
		want := "1s: 0 UDP ports, 2 endpoints, 16s: 4 UDP ports, 1 endpoints, 1m2s: 1 UDP ports, 0 endpoints, 2m3s: 0 UDP ports, 1 endpoints, 2m8s: 0 UDP ports, 1 endpoints, 2m13s: 0 UDP ports, 1 endpoints"
		if got := strings.Join(passes, ", "); got != want {
			t.Errorf("passes at %s\nwant %s", got, want)
		}
	})
}
