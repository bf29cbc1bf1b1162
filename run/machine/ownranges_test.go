package machine

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestOwnRangesAvoidGivenOnes checks that no network is chosen that overlaps the one that the user has given.
func TestOwnRangesAvoidGivenOnes(t *testing.T) {
	dir := t.TempDir()
	given := netip.MustParsePrefix("10.96.0.0/12") // contains the default network of Services
	_, services, err := OwnRanges(dir, GivenRanges{Pods: []netip.Prefix{given}})
	if err != nil || services == "" || given.Overlaps(netip.MustParsePrefix(services)) {
		t.Errorf("Services get %q beside Pods in %s: %v", services, given, err)
	}
	// Half of the networks that are tried are in the given one.
	given = netip.MustParsePrefix("10.192.0.0/11")
	_, other, err := OwnRanges(dir, GivenRanges{Pods: []netip.Prefix{given, netip.MustParsePrefix("10.96.0.0/16")}})
	if err != nil || other == "" || given.Overlaps(netip.MustParsePrefix(other)) || other == services {
		t.Errorf("Services get %q beside Pods in %s: %v", other, given, err)
	}
	if pods, services, err := OwnRanges(dir, GivenRanges{Pods: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}); err == nil ||
		!strings.Contains(err.Error(), "--service-cidr") {
		t.Errorf("%q and %q are chosen where nothing is free, %v", pods, services, err)
	}
}

// TestRangeUser checks that addresses of this machine and reservations of starting clusters are found, also if they are only a part of
// a network.
func TestRangeUser(t *testing.T) {
	dir := t.TempDir()
	if got := RangeUser(dir, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/16")}); got != "the address 127.0.0.1 of the interface lo" {
		t.Errorf("the network of localhost is used by %q", got)
	}
	free := []netip.Prefix{netip.MustParsePrefix("198.18.64.0/18")}
	if got := RangeUser(dir, free); got != "" {
		t.Errorf("%v is used by %q", free, got)
	}
	if !ReserveRanges([]netip.Prefix{netip.MustParsePrefix("198.18.65.0/24")}) {
		t.Fatal("the network is reserved already")
	}
	if got := RangeUser(dir, free); got != "another cluster that is just starting, with the network 198.18.65.0/24" {
		t.Errorf("%v is used by %q", free, got)
	}
}

func TestOwnLinks(t *testing.T) {
	bridge := podBridge("/d")
	if !isOwnLink("/d", bridge) || isOwnLink("/e", bridge) || isOwnLink("/d", "proa0") || isOwnLink("/d", "eth0") {
		t.Errorf("the links of /d, whose bridge is %s, are not told apart", bridge)
	}
}

func TestParseRoutes(t *testing.T) {
	const four = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
		"eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\nproa0\t0000F40A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
	want := []hostRoute{{netip.MustParsePrefix("0.0.0.0/0"), "eth0"}, {netip.MustParsePrefix("10.244.0.0/24"), "proa0"}}
	if got := parseRoutes4(four); !slices.Equal(got, want) {
		t.Errorf("IPv4: %v", got)
	}
	const six = "fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n"
	if got := parseRoutes6(six); !slices.Equal(got, []hostRoute{{netip.MustParsePrefix("fd00::/64"), "eth0"}}) {
		t.Errorf("IPv6: %v", got)
	}
}
