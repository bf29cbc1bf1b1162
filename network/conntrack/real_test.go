package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proa.dev/network/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// openWithEntries replaces the entries of the conntrack table and opens it.
func openWithEntries(t testing.TB, flows ...testEntry) *Conn {
	t.Helper()
	nettest.Need(t)
	if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		t.Fatal(err)
	}
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	responses := make([]byte, answer)
	for list := range slices.Chunk(flows, batch) {
		var b []byte
		for _, k := range list {
			b = request{messageFlow, unix.NLM_F_CREATE | unix.NLM_F_ACK, c.drop.next(), k.family(),
				func(b []byte) []byte { return append(b, k.attributes()...) }}.appendTo(b)
		}
		if err := c.drop.ask(b, len(list), responses); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// remainingEntries returns the entries of the conntrack table, sorted.
func remainingEntries(t *testing.T, c *Conn) string {
	t.Helper()
	var out []string
	for _, six := range []bool{false, true} {
		if err := c.Drop(Filter{Six: six}, func(f *Flow) bool {
			out = append(out, f.String())
			return false
		}); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func sampleEntries() []testEntry {
	return []testEntry{
		{protocol: udp, from: "10.0.0.1:1001", to: "10.96.0.10:53", replyFrom: "10.0.0.2:53"},
		{protocol: udp, from: "10.0.0.1:1002", to: "10.96.0.10:54", replyFrom: "10.0.0.2:53", answered: true},
		{protocol: udp, from: "10.0.0.1:1003", to: "10.96.0.11:53", replyFrom: "10.0.0.3:53"},
		{protocol: tcp, from: "10.0.0.1:1004", to: "10.96.0.10:53", replyFrom: "10.0.0.2:53", state: 1},
		{protocol: tcp, from: "10.0.0.1:1005", to: "10.96.0.10:53", replyFrom: "10.0.0.2:53", state: 3, answered: true},
		{protocol: tcp, from: "10.0.0.1:1006", to: "10.96.0.10:53", replyFrom: "10.0.0.2:53", state: 1, zone: 7},
		{protocol: udp, from: "[fd00::1]:1001", to: "[fd00::10]:53", replyFrom: "[fd00::2]:53"},
		{protocol: udp, from: "[fd00::1]:1002", to: "[fd00::11]:53", replyFrom: "[fd00::2]:53"},
		{protocol: tcp, from: "[fd00::1]:1003", to: "[fd00::10]:53", replyFrom: "[fd00::2]:53", state: 1},
	}
}

// TestKernelFilters checks what the kernel returns, before it is filtered again here.
func TestKernelFilters(t *testing.T) {
	c := openWithEntries(t, sampleEntries()...)
	var name unix.Utsname
	var major, minor int
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); err != nil || major < 5 || major == 5 &&
		minor < 16 {
		t.Skip("this kernel may not support filters", err)
	}
	for _, x := range []struct {
		filter Filter
		want   string // the ports that the connections come from
	}{
		{Filter{}, "1001 1002 1003 1004 1005 1006"},
		{Filter{Six: true}, "1001 1002 1003"},
		{Filter{Protocol: udp}, "1001 1002 1003"},
		{Filter{Protocol: tcp}, "1004 1005 1006"},
		{Filter{Protocol: tcp, Unanswered: true}, "1004 1006"},
		{Filter{Unanswered: true}, "1001 1003 1004 1006"},
		{Filter{Protocol: udp, To: netip.MustParseAddrPort("10.96.0.10:53")}, "1001"},
		{Filter{Protocol: udp, To: netip.MustParseAddrPort("10.96.0.10:0")}, "1001 1002"},
		{Filter{Protocol: udp, To: netip.AddrPortFrom(netip.Addr{}, 53)}, "1001 1003"},
		{Filter{Protocol: udp, Six: true}, "1001 1002"},
		{Filter{Protocol: udp, Six: true, To: netip.MustParseAddrPort("[fd00::11]:53")}, "1001 1002"},
		{Filter{Protocol: udp, Six: true, To: netip.MustParseAddrPort("[fd00::11]:54")}, ""},
		{Filter{Protocol: tcp, Six: true, Unanswered: true}, "1003"},
	} {
		var got []string
		if err := c.pass(x.filter, Filter{Six: x.filter.Six}, func(f *Flow) bool {
			got = append(got, fmt.Sprint(f.Asked.From.Port()))
			return false
		}); err != nil {
			t.Fatalf("%+v: %v", x.filter, err)
		}
		slices.Sort(got)
		if got := strings.Join(got, " "); got != x.want {
			t.Errorf("%+v: the kernel shows %s, want %s", x.filter, got, x.want)
		}
	}
}

// TestDrop checks that only the selected entries are deleted, also those in zones.
func TestDrop(t *testing.T) {
	c := openWithEntries(t, sampleEntries()...)
	gone := netip.MustParseAddrPort("10.0.0.2:53")
	if err := c.Drop(Filter{Protocol: tcp, Unanswered: true}, func(f *Flow) bool { return f.Answered.From == gone }); err != nil {
		t.Fatal(err)
	}
	want := `17 10.0.0.1:1001>10.96.0.10:53 10.0.0.2:53>10.0.0.1:1001 state 0
17 10.0.0.1:1002>10.96.0.10:54 10.0.0.2:53>10.0.0.1:1002 state 0
17 10.0.0.1:1003>10.96.0.11:53 10.0.0.3:53>10.0.0.1:1003 state 0
17 [fd00::1]:1001>[fd00::10]:53 [fd00::2]:53>[fd00::1]:1001 state 0
17 [fd00::1]:1002>[fd00::11]:53 [fd00::2]:53>[fd00::1]:1002 state 0
6 10.0.0.1:1005>10.96.0.10:53 10.0.0.2:53>10.0.0.1:1005 state 3
6 [fd00::1]:1003>[fd00::10]:53 [fd00::2]:53>[fd00::1]:1003 state 1`
	if got := remainingEntries(t, c); got != want {
		t.Errorf("left:\n%s\nwant:\n%s", got, want)
	}
}

// TestDropMany deletes more entries than fit into one call.
func TestDropMany(t *testing.T) {
	flows := []testEntry{{protocol: udp, from: "10.0.0.9:9", to: "10.96.0.10:53"}}
	for i := range 20*batch + 5 {
		flows = append(flows, testEntry{protocol: udp, from: fmt.Sprint("10.0.0.1:", 1000+i), to: "10.96.0.10:53"})
	}
	c := openWithEntries(t, flows...)
	client := netip.MustParseAddr("10.0.0.1")
	if err := c.Drop(Filter{Protocol: udp}, func(f *Flow) bool { return f.Asked.From.Addr() == client }); err != nil {
		t.Fatal(err)
	}
	if got, want := remainingEntries(t, c), "17 10.0.0.9:9>10.96.0.10:53 10.96.0.10:53>10.0.0.9:9 state 0"; got != want {
		t.Errorf("left:\n%s\nwant:\n%s", got, want)
	}
}

// TestForgetAddresses checks that an entry is deleted by any of its four addresses.
func TestForgetAddresses(t *testing.T) {
	c := openWithEntries(t,
		testEntry{protocol: tcp, from: "10.0.0.1:1", to: "10.0.0.2:2", state: 3},
		testEntry{protocol: tcp, from: "10.0.0.2:2", to: "10.0.0.1:2", state: 3},
		testEntry{protocol: tcp, from: "10.0.0.2:3", to: "10.96.0.1:3", replyFrom: "10.0.0.1:3", state: 3},
		testEntry{protocol: udp, from: "10.0.0.2:4", to: "10.0.0.3:4"},
		testEntry{protocol: udp, from: "[fd00::2]:5", to: "[fd00::1]:5"},
		testEntry{protocol: udp, from: "[fd00::2]:6", to: "[fd00::3]:6"},
	)
	if err := c.Forget(map[netip.Addr]bool{netip.MustParseAddr("10.0.0.1"): true, netip.MustParseAddr("fd00::1"): true}); err != nil {
		t.Fatal(err)
	}
	want := `17 10.0.0.2:4>10.0.0.3:4 10.0.0.3:4>10.0.0.2:4 state 0
17 [fd00::2]:6>[fd00::3]:6 [fd00::3]:6>[fd00::2]:6 state 0`
	if got := remainingEntries(t, c); got != want {
		t.Errorf("left:\n%s\nwant:\n%s", got, want)
	}
}

// TestDropWithFilterThatTheKernelRefuses checks that entries are read without a filter when the kernel refuses it.
func TestDropWithFilterThatTheKernelRefuses(t *testing.T) {
	c := openWithEntries(t, sampleEntries()...)
	mixedFamilies := Filter{Six: true, Protocol: udp, To: netip.MustParseAddrPort("10.96.0.10:53")} // an IPv4 address in an IPv6 filter
	if err := c.pass(mixedFamilies, mixedFamilies, func(*Flow) bool { return false }); !errors.Is(err, errRefused) {
		t.Fatalf("the kernel returns %v", err)
	}
	if err := c.Drop(mixedFamilies, func(*Flow) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(remainingEntries(t, c), "\n") + 1; got != len(sampleEntries()) {
		t.Errorf("%d connections are left", got)
	}
}

// TestDropEntryAlreadyDeleted checks that Drop ignores entries that were deleted since they were read.
func TestDropEntryAlreadyDeleted(t *testing.T) {
	c := openWithEntries(t, sampleEntries()...)
	if err := c.Drop(Filter{}, func(*Flow) bool { return true }); err != nil {
		t.Fatal(err)
	}
	c = openWithEntries(t, sampleEntries()...)
	if err := c.Drop(Filter{}, func(*Flow) bool {
		_ = netlink.ConntrackTableFlush(netlink.ConntrackTable)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	if got := remainingEntries(t, c); got != "" {
		t.Errorf("left:\n%s", got)
	}
}

// BenchmarkDrop searches 100,000 entries, of which few are unanswered and to one address.
func BenchmarkDrop(b *testing.B) {
	var flows []testEntry
	for i := range 100_000 {
		k := testEntry{protocol: tcp, from: fmt.Sprintf("10.0.%d.%d:%d", i>>16, i>>8&255, 1024+i&255), to: "10.96.0.10:80",
			replyFrom: "10.1.0.2:80", state: 3, answered: true}
		if i%1000 == 0 {
			k.state, k.answered = 1, false
		}
		flows = append(flows, k)
	}
	c := openWithEntries(b, flows...)
	gone := netip.MustParseAddrPort("10.1.0.3:80")
	for name, f := range map[string]Filter{
		"all": {}, "TCP": {Protocol: tcp}, "unanswered TCP": {Protocol: tcp, Unanswered: true}, "UDP": {Protocol: udp}, "IPv6": {Six: true},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Drop(f, func(f *Flow) bool { return f.Answered.From == gone }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("by the library", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, matchNothing{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// matchNothing is a filter that nothing matches.
type matchNothing struct{}

// MatchConntrackFlow returns false.
func (matchNothing) MatchConntrackFlow(*netlink.ConntrackFlow) bool { return false }
