package networkpolicy

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
	"proa.dev/network/nettest"
)

// TestAddressCleaner checks that adding addresses does not wait for a pass over the connection table, and that only a
// Pod with such an address does.
func TestAddressCleaner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex // guards lines
		var lines []string
		record := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, fmt.Sprintf("%v: %s", time.Since(start), fmt.Sprintf(format, args...)))
		}
		forget := func(addrs map[netip.Addr]bool) error {
			var list []string
			for a := range addrs {
				list = append(list, a.String())
			}
			slices.Sort(list)
			record("forget %s", strings.Join(list, " "))
			time.Sleep(5 * time.Second) // a node with very many connections
			return nil
		}
		cleaner := newAddressCleaner(forget, func() error { record("closed"); return nil }, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { cleaner.Run(ctx) })
		a, b, c := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
		add := func(addrs ...netip.Addr) {
			set := map[netip.Addr]bool{}
			for _, a := range addrs {
				set[a] = true
			}
			cleaner.add(set)
		}
		waitFor := func(a netip.Addr) {
			wg.Go(func() {
				cleaner.waitFor([]netip.Addr{a})
				record("done %v", a)
			})
			synctest.Wait()
		}
		add() // no addresses
		add(a)
		synctest.Wait()
		waitFor(c) // it had no owner
		waitFor(a) // a pass for it is under way
		time.Sleep(time.Second)
		add(b)
		waitFor(b) // it needs a pass of its own
		time.Sleep(time.Second)
		add(a) // again
		time.Sleep(time.Minute)
		add(c)
		synctest.Wait()
		time.Sleep(time.Second)
		cancel()
		cleaner.close()
		waitFor(c)
		cleaner.add(map[netip.Addr]bool{b: true})
		waitFor(b) // nothing is deleted any more, but it does not wait forever
		wg.Wait()
		want := `0s: forget 10.0.0.1
0s: done 10.0.0.3
5s: forget 10.0.0.1 10.0.0.2
10s: done 10.0.0.1
10s: done 10.0.0.2
1m2s: forget 10.0.0.3
1m7s: closed
1m7s: done 10.0.0.3
1m7s: done 10.0.0.2`
		slices.SortStableFunc(lines, func(a, b string) int { // two may come at the same time
			if strings.Contains(a, "10s: done") && strings.Contains(b, "10s: done") {
				return strings.Compare(a, b)
			}
			return 0
		})
		if got := strings.Join(lines, "\n"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// TestAttachDuringConntrackCleanup checks that other Pods get their rules while conntrack entries of an address are deleted. The Pod
// that gets that address waits.
func TestAttachDuringConntrackCleanup(t *testing.T) {
	nettest.Need(t)
	views := map[schema.GroupResource]*nettest.View{gr.Pods: nettest.NewView(), gr.Namespaces: nettest.NewView(),
		gr.NetworkPolicies: nettest.NewView()}
	for _, o := range nettest.Objects(t, "kind: NetworkPolicy\nmetadata: {name: deny}\nspec: {podSelector: {}}\n") {
		views[gr.NetworkPolicies].Put(o)
	}
	g, err := New(Config{NodeName: "n1", Table: testTable,
		Open: func(_ context.Context, on schema.GroupResource) (client.View, error) { return views[on], nil }})
	if err != nil {
		t.Fatal(err)
	}
	runGuard(t, g)
	attach := func(pod, addr string) {
		if err := g.Attach(t.Context(), pod, pod, []netip.Addr{netip.MustParseAddr(addr)}); err != nil {
			t.Error(err)
		}
	}
	attach("default/a", "10.0.0.1")
	attach("default/b", "10.0.0.2")
	begun, finish := make(chan map[netip.Addr]bool, 9), make(chan struct{})
	var finished atomic.Bool
	g.mu.Lock()
	g.run.cleaner.forget = func(released map[netip.Addr]bool) error {
		begun <- released
		<-finish
		return nil
	}
	g.mu.Unlock()
	released := netip.MustParseAddr("10.0.0.1")
	g.Detach([]netip.Addr{released})
	if got := <-begun; !got[released] || len(got) != 1 {
		t.Errorf("conntrack entries of %v are deleted", got)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		attach("default/c", "10.0.0.1")
		if !finished.Load() {
			t.Error("a Pod has got an address with old conntrack entries")
		}
	}()
	for has := false; !has; runtime.Gosched() { // until Attach waits
		g.mu.Lock()
		has = g.facts.owner[released].name == "c"
		g.mu.Unlock()
	}
	attach("default/d", "10.0.0.3")
	g.Taken(released)
	g.Detach([]netip.Addr{netip.MustParseAddr("10.0.0.2")})
	attach("default/e", "10.0.0.4")
	finished.Store(true)
	close(finish)
	<-done
}
