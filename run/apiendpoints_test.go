package run_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/kv"
	"proa.dev/proatest"
	"proa.dev/server/apiendpoints"
	"proa.dev/store/memory"
)

// sharedServers are API servers that share a store, of which only what keeps the endpoints of default/kubernetes runs.
type sharedServers struct {
	*testing.T
	cluster *proatest.Cluster
	store   *memory.Store
}

func newSharedServers(t *testing.T) *sharedServers {
	t.Helper()
	store := memory.New(memory.Config{})
	t.Cleanup(func() { _ = store.Close() })
	return &sharedServers{t, proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.Controllers("-*")), store}
}

// start runs a server at an address until the returned function is called.
func (s *sharedServers) start(address func() netip.AddrPort) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	k := &apiendpoints.Keeper{Client: s.cluster.Client, Leases: s.store, Address: address, ClusterIP: netip.MustParseAddr("10.96.0.1"),
		Log: slog.New(slog.NewTextHandler(s.Output(), nil))}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := k.Sync(ctx); err != nil {
			s.Error(err)
		}
		k.Run(ctx)
	})
	return func() { cancel(); wg.Wait() }
}

func fixed(address string) func() netip.AddrPort {
	return func() netip.AddrPort { return netip.MustParseAddrPort(address) }
}

// listed returns what the slices and the Endpoints of default/kubernetes lead to.
func (s *sharedServers) listed() string {
	s.Helper()
	synctest.Wait()
	var out []string
	v, err := s.cluster.Client.View(s.Context(), gr.EndpointSlices)
	if err != nil {
		s.Fatal(err)
	}
	var inSlices, inEndpoints []string
	for o := range v.List("default") {
		slice := o.(*discoveryv1.EndpointSlice)
		for _, e := range slice.Endpoints {
			inSlices = append(inSlices, fmt.Sprintf("%s:%d", e.Addresses[0], *slice.Ports[0].Port))
		}
		out = append(out, slice.Name)
	}
	o, err := s.cluster.Client.Get(s.Context(), gr.Endpoints, "default", "kubernetes", "")
	if err != nil {
		s.Fatal(err)
	}
	for _, subset := range o.(*corev1.Endpoints).Subsets {
		for _, a := range subset.Addresses {
			inEndpoints = append(inEndpoints, fmt.Sprintf("%s:%d", a.IP, subset.Ports[0].Port))
		}
	}
	slices.Sort(inSlices)
	slices.Sort(inEndpoints)
	if !slices.Equal(inSlices, inEndpoints) {
		s.Errorf("the slices lead to %v, the Endpoints to %v", inSlices, inEndpoints)
	}
	return strings.Join(out, ",") + " " + strings.Join(inSlices, " ")
}

func (s *sharedServers) want(when, list string) {
	s.Helper()
	if got := s.listed(); got != list {
		s.Errorf("%s: %s, want %s", when, got, list)
	}
}

// TestEndpointsOfSharedServers checks that default/kubernetes leads to every server that is alive: all that start at the same time,
// a server at its new address, and neither one that has stopped nor, when its lease has expired, one that was killed.
func TestEndpointsOfSharedServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedServers(t)
		var stops []func()
		for i := range 8 {
			stops = append(stops, s.start(fixed(fmt.Sprintf("192.0.2.%d:6443", 11+i))))
		}
		all := "192.0.2.11:6443 192.0.2.12:6443 192.0.2.13:6443 192.0.2.14:6443 192.0.2.15:6443 192.0.2.16:6443 192.0.2.17:6443 192.0.2.18:6443"
		time.Sleep(time.Second) // those that were overtaken have tried again
		s.want("eight at once", "kubernetes "+all)
		time.Sleep(time.Minute)
		s.want("after a minute", "kubernetes "+all)
		for _, stop := range stops[2:] {
			stop()
		}
		s.want("six have stopped", "kubernetes 192.0.2.11:6443 192.0.2.12:6443")

		// A server that was killed has left its lease behind.
		left := kv.Write{Key: "/registry/masterleases/192.0.2.9:6443", Value: []byte("{}"), TTL: 5}
		if _, err := s.store.Commit(t.Context(), left); err != nil {
			t.Fatal(err)
		}
		s.want("a server was there", "kubernetes 192.0.2.11:6443 192.0.2.12:6443 192.0.2.9:6443")
		time.Sleep(5*time.Second + time.Millisecond)
		s.want("it was killed", "kubernetes 192.0.2.11:6443 192.0.2.12:6443")

		// Two servers behind one address count as one, until both have stopped.
		twin := s.start(fixed("192.0.2.12:6443"))
		stops[1]()
		time.Sleep(10 * time.Second)
		s.want("its twin is left", "kubernetes 192.0.2.11:6443 192.0.2.12:6443")
		twin()
		s.want("both are gone", "kubernetes 192.0.2.11:6443")

		// Two servers at other ports and of the other family have slices of their own; the laptop wakes up in another network.
		stop := s.start(fixed("[2001:db8::1]:6443"))
		laptop := netip.MustParseAddrPort("192.0.2.13:6444")
		var mu sync.Mutex
		stopLaptop := s.start(func() netip.AddrPort { mu.Lock(); defer mu.Unlock(); return laptop })
		s.want("others", "kubernetes,kubernetes-ipv4-6444,kubernetes-ipv6-6443 192.0.2.11:6443 192.0.2.13:6444 2001:db8::1:6443")
		mu.Lock()
		laptop = netip.MustParseAddrPort("198.51.100.7:6443")
		mu.Unlock()
		time.Sleep(2 * time.Second)
		s.want("in another network", "kubernetes,kubernetes-ipv6-6443 192.0.2.11:6443 198.51.100.7:6443 2001:db8::1:6443")
		stops[0]()
		stopLaptop()
		s.want("one of the other family is left", "kubernetes 2001:db8::1:6443")
		stop()
	})
}
