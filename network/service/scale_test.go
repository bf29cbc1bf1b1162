package service

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"time"

	"proa.dev/network/nettest"
)

// many makes Services with endpoints out of numbers.
func many(services, endpoints int) map[key][]port {
	out := map[key][]port{}
	for i := range services {
		ip := netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})
		p := port{name: fmt.Sprintf("default/service-%d", i), protocol: 6, clusterIP: ip, vips: []vip{{addr: ip, port: 80, to: toCluster}}}
		for j := range endpoints {
			n := i*endpoints + j
			p.cluster = append(p.cluster, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(128 + n>>16), byte(n >> 8), byte(n)}), 8080))
		}
		p.serving = p.cluster
		out[key{"default", fmt.Sprint("service-", i)}] = []port{p}
	}
	return out
}

// TestScale writes ten thousand Services with a hundred thousand endpoints, then changes one. It prints what that takes; the
// numbers are for people, nothing depends on them. It needs half a minute and a gigabyte, so it must be asked for.
func TestScale(t *testing.T) {
	nettest.Need(t)
	sizes := []int{10, 1000}
	if os.Getenv("PROA_SCALE") != "" {
		sizes = []int{10, 1000, 5000, 10000}
	}
	for _, services := range sizes {
		tab, err := newTable(settings{"proa-scale", 0x4000, clusterCIDRs, serviceCIDRs}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for k, ports := range many(services, 10) {
			tab.set(k, ports)
		}
		start := time.Now()
		if err := tab.commit(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d Services, %d endpoints: %v", services, 10*services, time.Since(start).Round(time.Millisecond))
		k := key{"default", "service-5"}
		measure := func(what string, change func(i int)) {
			t.Helper()
			var least, sum time.Duration
			for i := range 20 {
				change(i)
				start := time.Now()
				if err := tab.commit(); err != nil {
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
			p.cluster = append([]netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80)}, original.cluster[1:]...)
			tab.set(k, []port{p})
		})
		measure("one endpoint more or less", func(i int) {
			p := original
			p.cluster = original.cluster[i%2:]
			tab.set(k, []port{p})
		})
		measure("one Service more or less", func(i int) {
			if i%2 == 0 {
				tab.set(k, nil)
			} else {
				tab.set(k, []port{original})
			}
		})
		tab.close()
		if err := Purge("proa-scale"); err != nil {
			t.Fatal(err)
		}
	}
}
