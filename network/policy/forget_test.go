package policy

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
	"proa.dev/kinds/gr"
	"proa.dev/network/nettest"
)

// TestForgetter: who writes rules does not wait for a look at the kernel's connections, and of Pods only those that get an address
// that is looked for.
func TestForgetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex // guards said
		var said []string
		say := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, fmt.Sprintf("%v: %s", time.Since(start), fmt.Sprintf(format, args...)))
		}
		look := func(lost map[netip.Addr]bool) error {
			var list []string
			for a := range lost {
				list = append(list, a.String())
			}
			slices.Sort(list)
			say("look for %s", strings.Join(list, " "))
			time.Sleep(5 * time.Second) // a node with very many connections
			return nil
		}
		f := makeForgetter(look, func() error { say("closed"); return nil }, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { f.run(ctx) })
		a, b, c := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
		note := func(addrs ...netip.Addr) {
			lost := map[netip.Addr]bool{}
			for _, a := range addrs {
				lost[a] = true
			}
			f.note(lost)
		}
		settle := func(a netip.Addr) {
			wg.Go(func() {
				f.settle([]netip.Addr{a})
				say("settled %v", a)
			})
			synctest.Wait()
		}
		note() // nothing
		note(a)
		synctest.Wait()
		settle(c) // nobody has had it
		settle(a) // it is being looked for
		time.Sleep(time.Second)
		note(b)
		settle(b) // it waits for a look of its own
		time.Sleep(time.Second)
		note(a) // again
		time.Sleep(time.Minute)
		note(c)
		synctest.Wait()
		time.Sleep(time.Second)
		cancel()
		f.close()
		settle(c)
		f.note(map[netip.Addr]bool{b: true})
		settle(b) // in vain, but it does not wait forever
		wg.Wait()
		want := `0s: look for 10.0.0.1
0s: settled 10.0.0.3
5s: look for 10.0.0.1 10.0.0.2
10s: settled 10.0.0.1
10s: settled 10.0.0.2
1m2s: look for 10.0.0.3
1m7s: closed
1m7s: settled 10.0.0.3
1m7s: settled 10.0.0.2`
		slices.SortStableFunc(said, func(a, b string) int { // two may come at the same time
			if strings.Contains(a, "10s: settled") && strings.Contains(b, "10s: settled") {
				return strings.Compare(a, b)
			}
			return 0
		})
		if got := strings.Join(said, "\n"); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// TestRulesDoNotWait: while connections of an address are looked for, others get their rules. The Pod that gets that address waits.
func TestRulesDoNotWait(t *testing.T) {
	nettest.Need(t)
	views := map[schema.GroupResource]*nettest.View{gr.Pods: nettest.NewView(), gr.Namespaces: nettest.NewView(), gr.NetworkPolicies: nettest.NewView()}
	for _, o := range nettest.Objects(t, "kind: NetworkPolicy\nmetadata: {name: deny}\nspec: {podSelector: {}}\n") {
		views[gr.NetworkPolicies].Put(o)
	}
	g, err := New(Config{NodeName: "n1", Table: testTable, Open: func(_ context.Context, on schema.GroupResource) (client.View, error) { return views[on], nil }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer func() {
		cancel()
		wg.Wait()
		if err := Purge(testTable); err != nil {
			t.Error(err)
		}
	}()
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
	g.run.forget.look = func(lost map[netip.Addr]bool) error {
		begun <- lost
		<-finish
		return nil
	}
	g.mu.Unlock()
	lost := netip.MustParseAddr("10.0.0.1")
	g.Detach([]netip.Addr{lost})
	if got := <-begun; !got[lost] || len(got) != 1 {
		t.Errorf("looked for %v", got)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		attach("default/c", "10.0.0.1")
		if !finished.Load() {
			t.Error("a Pod has got an address of which connections are left")
		}
	}()
	for has := false; !has; runtime.Gosched() { // until it has come to where it must wait
		g.mu.Lock()
		has = g.facts.owner[lost].name == "c"
		g.mu.Unlock()
	}
	attach("default/d", "10.0.0.3")
	g.Taken(lost)
	g.Detach([]netip.Addr{netip.MustParseAddr("10.0.0.2")})
	attach("default/e", "10.0.0.4")
	finished.Store(true)
	close(finish)
	<-done
}
