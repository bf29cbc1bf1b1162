package servicetable

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"time"

	"proa.dev/network/nettest"
)

// makeServices returns Services with generated addresses and endpoints.
func makeServices(services, endpoints int) map[key][]Port {
	out := map[key][]Port{}
	for i := range services {
		ip := netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})
		p := Port{Name: fmt.Sprintf("default/service-%d", i), Protocol: 6, ClusterIP: ip,
			VIPs: []VIP{{Addr: ip, Port: 80, Target: ToCluster}}}
		for j := range endpoints {
			n := i*endpoints + j
			p.Cluster = append(p.Cluster, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(128 + n>>16), byte(n >> 8), byte(n)}), 8080))
		}
		p.Serving = p.Cluster
		out[key{Namespace: "default", Name: fmt.Sprint("service-", i)}] = []Port{p}
	}
	return out
}

// TestScale logs how long it takes to write many Services and to change one. With PROA_SCALE set it goes up to ten thousand Services with a
// hundred thousand endpoints, which needs half a minute and a gigabyte.
func TestScale(t *testing.T) {
	nettest.Need(t)
	sizes := []int{10, 1000}
	if os.Getenv("PROA_SCALE") != "" {
		sizes = []int{10, 1000, 5000, 10000}
	}
	for _, services := range sizes {
		tab, err := Open(Settings{"proa-scale", 0x4000, clusterCIDRs, serviceCIDRs}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for k, ports := range makeServices(services, 10) {
			tab.Set(k, ports)
		}
		start := time.Now()
		if err := tab.Commit(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d Services, %d endpoints: %v", services, 10*services, time.Since(start).Round(time.Millisecond))
		k := key{Namespace: "default", Name: "service-5"}
		measure := func(what string, change func(i int)) {
			t.Helper()
			var least, sum time.Duration
			for i := range 20 {
				change(i)
				start := time.Now()
				if err := tab.Commit(); err != nil {
					t.Fatal(what, err)
				}
				took := time.Since(start)
				sum += took
				if least == 0 || took < least {
					least = took
				}
			}
			t.Logf("  %s: least %v, mean %v", what, least.Round(time.Microsecond), (sum / 20).Round(time.Microsecond))
		}
		original := tab.services[k][0]
		measure("one endpoint replaced", func(i int) {
			p := original
			p.Cluster = append([]netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80)},
				original.Cluster[1:]...)
			tab.Set(k, []Port{p})
		})
		measure("one endpoint added or removed", func(i int) {
			p := original
			p.Cluster = original.Cluster[i%2:]
			tab.Set(k, []Port{p})
		})
		measure("one Service added or removed", func(i int) {
			if i%2 == 0 {
				tab.Set(k, nil)
			} else {
				tab.Set(k, []Port{original})
			}
		})
		tab.Close()
		if err := Remove("proa-scale"); err != nil {
			t.Fatal(err)
		}
	}
}
