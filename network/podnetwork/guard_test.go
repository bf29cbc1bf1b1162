package podnetwork

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proa.dev/network/cni"
	"proa.dev/network/nettest"
)

// watcher is a Guard that records its calls.
type watcher struct {
	mu    sync.Mutex
	told  []string
	fail  error
	taken map[netip.Addr]bool
}

func (w *watcher) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, fmt.Sprintf(format, args...))
}

func (w *watcher) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := strings.Join(w.told, "; ")
	w.told = nil
	return out
}

func (w *watcher) Attach(_ context.Context, pod, uid string, addrs []netip.Addr) error {
	w.note("attach %s %s %v", pod, uid, addrs)
	return w.fail
}
func (w *watcher) Adopt(pod, uid string, addrs []netip.Addr) {
	w.note("adopt %s %s %v", pod, uid, addrs)
}
func (w *watcher) Detach(addrs []netip.Addr) { w.note("detach %v", addrs) }
func (w *watcher) Taken(a netip.Addr) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken[a]
}

func TestTheGuardIsTold(t *testing.T) {
	c := dualStack(t.TempDir())
	g := &watcher{taken: map[netip.Addr]bool{}}
	c.Guard = g
	c.Trace = func(uid string) func(error) { return func(err error) { g.note("traced %s %v", uid, err) } }
	x := start(t, c)
	a := x.pod("a", nil)
	nettest.Same(t, "a Pod comes", g.take(), "attach default/a u-a [10.244.7.2 fd00:244:7::2]; traced u-a <nil>")
	x.stop()
	x.begin()
	nettest.Same(t, "the agent comes again", g.take(), "adopt default/a u-a [10.244.7.2 fd00:244:7::2]")

	// As long as others believe that somebody has the address, nobody else gets it.
	g.mu.Lock()
	g.taken[netip.MustParseAddr(a.v4)] = true
	g.mu.Unlock()
	x.must(cni.Del, "a", a.NS, nil)
	a.Drop()
	x.n.drain.flush(time.Now())
	if got := g.take(); got != "" || !slices.ContainsFunc(x.n.pool.all(), func(r *record) bool { return r.Addresses[0].String() == a.v4 }) {
		t.Errorf("an address that others believe to be in use was freed: %s", got)
	}
	g.mu.Lock()
	clear(g.taken)
	g.mu.Unlock()
	x.n.drain.flush(time.Now())
	nettest.Same(t, "a Pod is gone", g.take(), "detach [10.244.7.2 fd00:244:7::2]")

	// Who cannot be guarded is not connected.
	g.mu.Lock()
	g.fail = errors.New("the rules cannot be written")
	g.mu.Unlock()
	_, err := x.tryPod("b", nil)
	if err == nil || !strings.Contains(err.Error(), "the rules cannot be written") {
		t.Errorf("a Pod without a guard got: %v", err)
	}
	if got := g.take(); !strings.Contains(got, "traced u-b ") || !strings.Contains(got, "the rules cannot be written") {
		t.Errorf("the trace has %s", got)
	}
	for _, r := range x.n.pool.all() {
		if !r.Deleted {
			t.Errorf("%s is connected", r.ContainerID)
		}
	}
}

// TestConnectionsAreNotInherited checks that the conntrack entries of a deleted Pod are removed.
func TestConnectionsAreNotInherited(t *testing.T) {
	x := start(t, dualStack(t.TempDir()))
	a, b := x.pod("a", nil), x.pod("b", nil)
	b.Listen("udp", ":53", "b")
	known := func() (n int) {
		for _, f := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, flow := range flows {
				if ip := flow.Forward.SrcIP.String(); ip == a.v4 || ip == a.v6 {
					n++
				}
			}
		}
		return n
	}
	nettest.Same(t, "IPv4", a.Ask("udp", nettest.At(b.v4, 53)), "b "+a.v4)
	nettest.Same(t, "IPv6", a.Ask("udp", nettest.At(b.v6, 53)), "b "+a.v6)
	if known() != 2 {
		t.Errorf("the kernel knows %d connections of the Pod, not 2; the test shows nothing", known())
	}
	x.must(cni.Del, "a", a.NS, nil)
	a.Drop()
	x.n.drain.flush(time.Now())
	if n := known(); n != 0 {
		t.Errorf("the kernel knows %d connections of a Pod that is gone", n)
	}
}
