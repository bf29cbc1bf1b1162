package machine

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/run/parthealth"
)

// TestFailingPartMakesNodeNotReady checks that a part that ends at once fails the node's check until it has run for a while, that
// a part that ends after a long time is only restarted, and that a listening part works as soon as it listens.
func TestFailingPartMakesNodeNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := agentHost{refused: &refusedWatches{}}
		changes := 0
		p.health.OnChange(func() { changes++ })
		errInUse := errors.New("address already in use")
		check := func(when, want string) {
			t.Helper()
			got := ""
			for _, c := range p.checks() {
				if err := c.Run(); err != nil {
					got += err.Error()
				}
			}
			if got != want {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		_ = p.health.Run(t.Context(), "service-proxy", func() error { return errInUse })
		check("it failed at once", "service-proxy: address already in use")
		_ = p.health.Run(t.Context(), "service-proxy",
			func() error { check("it is tried again", "service-proxy: address already in use"); return errInUse })
		_ = p.health.Run(t.Context(), "service-proxy", func() error {
			time.Sleep(parthealth.WorksAfter + 1)
			synctest.Wait()
			check("it has run for a while", "")
			return errInUse
		})
		check("it ended after a while", "")
		_ = p.health.RunListener(t.Context(), "dns", func(listening func()) error { listening(); check("it listens", ""); return errInUse })
		check("it ended", "dns: address already in use")
		if changes != 3 {
			t.Errorf("%d changes, not 3", changes)
		}
	})
}

// TestFreeRanges checks that no network is chosen in which the machine has an address.
func TestFreeRanges(t *testing.T) {
	taken := func(all ...string) (out []netip.Prefix) {
		for _, s := range all {
			out = append(out, netip.PrefixFrom(netip.MustParseAddr(s), netip.MustParseAddr(s).BitLen()))
		}
		return out
	}
	for _, c := range []struct {
		begin          int
		taken          []netip.Prefix
		pods, services string
	}{
		{3, nil, "10.131.0.0/16", "10.195.0.0/16"},
		{3, taken("10.131.0.1", "192.0.2.1", "fd00::1"), "10.132.0.0/16", "10.196.0.0/16"},
		{3, taken("10.195.0.10", "10.132.7.1"), "10.133.0.0/16", "10.197.0.0/16"},
		{59, taken("10.187.0.1"), "10.128.0.0/16", "10.192.0.0/16"},
	} {
		free := func(p, s netip.Prefix) bool { return !overlaps(c.taken, p, s) }
		if pods, services, found := freeRanges(c.begin, free); !found || pods.String() != c.pods || services.String() != c.services {
			t.Errorf("from %d beside %v: %s and %s, want %s and %s", c.begin, c.taken, pods, services, c.pods, c.services)
		}
	}
}

// TestReserveRanges checks that no process gets a network that another has reserved, and that a process that gets only a
// part of what it asks for keeps nothing.
func TestReserveRanges(t *testing.T) {
	first, second, third := netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("10.10.0.0/16"),
		netip.MustParsePrefix("10.11.0.0/16")
	if !ReserveRanges([]netip.Prefix{first, second}) {
		t.Error("free networks cannot be reserved")
	}
	if ReserveRanges([]netip.Prefix{third, netip.MustParsePrefix("10.10.7.0/16")}) {
		t.Error("a network was reserved twice")
	}
	if !ReserveRanges([]netip.Prefix{third}) {
		t.Error("a network stays reserved although its pair was taken")
	}
}
