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

// recordingGuard is a Guard that records its calls.
type recordingGuard struct {
	mu    sync.Mutex
	calls []string
	fail  error
	taken map[netip.Addr]bool
}

func (w *recordingGuard) record(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, fmt.Sprintf(format, args...))
}

func (w *recordingGuard) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := strings.Join(w.calls, "; ")
	w.calls = nil
	return out
}

func (w *recordingGuard) Attach(_ context.Context, pod, uid string, addrs []netip.Addr) error {
	w.record("attach %s %s %v", pod, uid, addrs)
	return w.fail
}
func (w *recordingGuard) Adopt(pod, uid string, addrs []netip.Addr) {
	w.record("adopt %s %s %v", pod, uid, addrs)
}
func (w *recordingGuard) Detach(addrs []netip.Addr) { w.record("detach %v", addrs) }
func (w *recordingGuard) Taken(a netip.Addr) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken[a]
}

func TestGuardCalls(t *testing.T) {
	c := dualStack(t.TempDir())
	g := &recordingGuard{taken: map[netip.Addr]bool{}}
	c.Guard = g
	c.Trace = func(uid string) func(error) { return func(err error) { g.record("traced %s %v", uid, err) } }
	x := startNode(t, c)
	a := x.addPod("a", nil)
	nettest.Same(t, "a Pod is attached", g.take(), "attach default/a u-a [10.244.7.2 fd00:244:7::2]; traced u-a <nil>")
	x.stop()
	x.start()
	nettest.Same(t, "the agent restarts", g.take(), "adopt default/a u-a [10.244.7.2 fd00:244:7::2]")

	// An address that other nodes still allow for the deleted Pod is not released.
	g.mu.Lock()
	g.taken[netip.MustParseAddr(a.v4)] = true
	g.mu.Unlock()
	x.mustCall(cni.Del, "a", a.NS, nil)
	a.Drop()
	x.n.drain.flush(time.Now())
	if got := g.take(); got != "" || !slices.ContainsFunc(x.n.pool.all(), func(r *record) bool { return r.Addresses[0].String() == a.v4 }) {
		t.Errorf("an address that is still taken was released: %s", got)
	}
	g.mu.Lock()
	clear(g.taken)
	g.mu.Unlock()
	x.n.drain.flush(time.Now())
	nettest.Same(t, "a Pod is deleted", g.take(), "detach [10.244.7.2 fd00:244:7::2]")

	// A Pod whose rules cannot be written is not connected.
	g.mu.Lock()
	g.fail = errors.New("the rules cannot be written")
	g.mu.Unlock()
	_, err := x.tryAddPod("b", nil)
	if err == nil || !strings.Contains(err.Error(), "the rules cannot be written") {
		t.Errorf("a Pod without rules got: %v", err)
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
	x := startNode(t, dualStack(t.TempDir()))
	a, b := x.addPod("a", nil), x.addPod("b", nil)
	b.Listen("udp", ":53", "b")
	entries := func() (n int) {
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
	if entries() != 2 {
		t.Errorf("the kernel has %d conntrack entries of the Pod, not 2; the test shows nothing", entries())
	}
	x.mustCall(cni.Del, "a", a.NS, nil)
	a.Drop()
	x.n.drain.flush(time.Now())
	if n := entries(); n != 0 {
		t.Errorf("the kernel has %d conntrack entries of a deleted Pod", n)
	}
}
