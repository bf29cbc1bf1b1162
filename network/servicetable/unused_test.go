package servicetable

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"proa.dev/network/conntrack"
)

func endpointsOf(text string) (out []netip.AddrPort) {
	for _, s := range strings.Fields(text) {
		out = append(out, netip.MustParseAddrPort("10.0.0."+s+":80"))
	}
	return out
}

// TestRemovedEndpoints checks that only endpoints that were in use count as removed.
func TestRemovedEndpoints(t *testing.T) {
	tx := &transaction{Table: &Table{built: true, removedTCP: removedTCP{}}}
	var last []Port
	for _, step := range []struct{ serving, cluster, local, removed string }{
		{"1 2 3 4", "1 2", "", ""},
		{"1 2 3 4 5", "1", "", ""},        // 2 terminates, but it was in use
		{"1 4 5", "1", "", "10.0.0.2:80"}, // 3 was never in use
		{"1 4 5", "1", "4", ""},
		{"1", "1", "", "10.0.0.4:80"},
		{"", "", "", "10.0.0.1:80"},
	} {
		now := []Port{{Name: "a", Protocol: tcp, Serving: endpointsOf(step.serving), Cluster: endpointsOf(step.cluster),
			Local: endpointsOf(step.local)}}
		now = append(now, now[0])
		now[1].Protocol = udp
		tx.removedTCP, tx.udpTargets = removedTCP{}, nil
		tx.markUnused(last, now)
		tx.collectUDPTargets(last, now)
		tx.collectRemovedTCP(last, now)
		var removed []string
		for a := range tx.removedTCP {
			removed = append(removed, a.String())
		}
		if got := strings.Join(removed, " "); got != step.removed {
			t.Errorf("%+v: removed %s", step, got)
		}
		isNew := last == nil
		if got, want := len(tx.udpTargets) > 0, step.removed != "" || isNew; got != want {
			t.Errorf("%+v: UDP entries are looked for: %v", step, got)
		}
		last = now
	}
}

// TestRemovedEndpointsAfterRebuild checks that all endpoints from before a rebuild count as used.
func TestRemovedEndpointsAfterRebuild(t *testing.T) {
	tbl := &Table{removedTCP: removedTCP{}}
	tx := &transaction{Table: tbl}
	one := []Port{{Name: "a", Protocol: tcp, Serving: endpointsOf("1 2"), Cluster: endpointsOf("1"), unused: endpointsOf("2")}}
	tx.markUnused(nil, one)
	tbl.built = true
	tx.collectRemovedTCP(one, nil)
	if len(tbl.removedTCP) != 2 {
		t.Errorf("removed: %v", tbl.removedTCP)
	}
}

func TestUDPIndex(t *testing.T) {
	vips := func(text string) (out []netip.AddrPort) {
		for _, s := range strings.Fields(text) {
			out = append(out, netip.MustParseAddrPort(s))
		}
		return out
	}
	flow := func(to, from string) *conntrack.Flow {
		return &conntrack.Flow{Protocol: udp, Asked: conntrack.Ends{To: netip.MustParseAddrPort(to)},
			Answered: conntrack.Ends{From: netip.MustParseAddrPort(from)}}
	}
	for _, c := range []struct {
		name       string
		udpTargets []udpTarget
		six        bool
		to         string // the common destination of all entries that may be stale
		stale      string // to>from
		good       string
	}{
		{
			"one address", []udpTarget{{vips: vips("10.96.0.1:53"), serving: endpointsOf("1 2")}}, false,
			"10.96.0.1:53", "10.96.0.1:53>10.0.0.3:80 10.96.0.1:53>10.0.0.1:81", "10.96.0.1:53>10.0.0.1:80 10.96.0.1:54>10.0.0.3:80 10.96.0.2:53>10.0.0.3:80",
		},
		{
			"two ports", []udpTarget{{vips: vips("10.96.0.1:53")}, {vips: vips("10.96.0.1:54"), serving: endpointsOf("1")}}, false,
			"10.96.0.1:0", "10.96.0.1:53>10.0.0.1:80 10.96.0.1:54>10.0.0.2:80", "10.96.0.1:54>10.0.0.1:80",
		},
		{
			"two addresses", []udpTarget{{vips: vips("10.96.0.1:53 192.0.2.1:53"), serving: endpointsOf("1")}}, false,
			"invalid AddrPort", "192.0.2.1:53>10.0.0.2:80", "192.0.2.1:53>10.0.0.1:80",
		},
		{
			"a port of the node", []udpTarget{{vips: vips("10.96.0.1:53"), nodePort: 30053, serving: endpointsOf("1")}}, false,
			"invalid AddrPort", "203.0.113.1:30053>10.0.0.2:80 10.96.0.1:53>10.0.0.2:80",
			"203.0.113.1:30053>10.0.0.1:80 203.0.113.1:53>10.0.0.2:80",
		},
		{
			"the other family", []udpTarget{{vips: vips("10.96.0.1:53")}, {six: true, vips: vips("[fd00::1]:53")}}, true,
			"[fd00::1]:53", "[fd00::1]:53>[fd00::2]:80", "10.96.0.1:53>10.0.0.1:80",
		},
	} {
		l := indexUDPTargets(c.udpTargets, c.six)
		if f := l.filter(c.six); f.To.String() != c.to || f.Protocol != udp || f.Six != c.six || f.Unanswered {
			t.Errorf("%s: filter %+v, want %s", c.name, f, c.to)
		}
		for want, list := range map[bool]string{true: c.stale, false: c.good} {
			for _, s := range strings.Fields(list) {
				to, from, _ := strings.Cut(s, ">")
				if got := l.isStale(flow(to, from)); got != want {
					t.Errorf("%s: %s stale: %v", c.name, s, got)
				}
			}
		}
	}
	other := flow("10.96.0.1:53", "10.0.0.3:80")
	other.Protocol = tcp
	if indexUDPTargets([]udpTarget{{vips: vips("10.96.0.1:53")}}, false).isStale(other) {
		t.Error("a TCP connection counts as UDP")
	}
}

func TestRemovedTCPIsStale(t *testing.T) {
	o := removedTCP{netip.MustParseAddrPort("10.0.0.1:80"): true}
	for _, c := range []struct {
		state uint8
		from  string
		want  bool
	}{{1, "10.0.0.1:80", true}, {3, "10.0.0.1:80", false}, {1, "10.0.0.1:81", false}, {1, "10.0.0.2:80", false}} {
		f := &conntrack.Flow{Protocol: tcp, State: c.state, Answered: conntrack.Ends{From: netip.MustParseAddrPort(c.from)}}
		if got := o.isStale(f); got != c.want {
			t.Errorf("%s: %v", fmt.Sprint(c), got)
		}
	}
}
