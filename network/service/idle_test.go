package service

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

// TestParted: what was in use once may have connections when it goes; what never was has none.
func TestParted(t *testing.T) {
	tx := &transaction{table: &table{built: true, openings: openings{}}}
	var last []port
	for _, step := range []struct{ serving, cluster, local, gone string }{
		{"1 2 3 4", "1 2", "", ""},
		{"1 2 3 4 5", "1", "", ""},        // 2 ends, but it was in use
		{"1 4 5", "1", "", "10.0.0.2:80"}, // 3 never was
		{"1 4 5", "1", "4", ""},
		{"1", "1", "", "10.0.0.4:80"},
		{"", "", "", "10.0.0.1:80"},
	} {
		now := []port{{name: "a", protocol: tcp, serving: endpointsOf(step.serving), cluster: endpointsOf(step.cluster), local: endpointsOf(step.local)}}
		now = append(now, now[0])
		now[1].protocol = udp
		tx.openings, tx.streams = openings{}, nil
		tx.markIdle(last, now)
		tx.noteStreams(last, now)
		tx.noteOpenings(last, now)
		var gone []string
		for a := range tx.openings {
			gone = append(gone, a.String())
		}
		if got := strings.Join(gone, " "); got != step.gone {
			t.Errorf("%+v: gone %s", step, got)
		}
		isNew := last == nil
		if got, want := len(tx.streams) > 0, step.gone != "" || isNew; got != want {
			t.Errorf("%+v: streams are looked for: %v", step, got)
		}
		last = now
	}
}

// TestPartedAfterRebuild: nobody knows what was in use before the table was built.
func TestPartedAfterRebuild(t *testing.T) {
	tbl := &table{openings: openings{}}
	tx := &transaction{table: tbl}
	one := []port{{name: "a", protocol: tcp, serving: endpointsOf("1 2"), cluster: endpointsOf("1"), idle: endpointsOf("2")}}
	tx.markIdle(nil, one)
	tbl.built = true
	tx.noteOpenings(one, nil)
	if len(tbl.openings) != 2 {
		t.Errorf("gone: %v", tbl.openings)
	}
}

func TestLanes(t *testing.T) {
	vips := func(text string) (out []netip.AddrPort) {
		for _, s := range strings.Fields(text) {
			out = append(out, netip.MustParseAddrPort(s))
		}
		return out
	}
	flow := func(to, from string) *conntrack.Flow {
		return &conntrack.Flow{Protocol: udp, Asked: conntrack.Ends{To: netip.MustParseAddrPort(to)}, Answered: conntrack.Ends{From: netip.MustParseAddrPort(from)}}
	}
	for _, c := range []struct {
		name    string
		streams []stream
		six     bool
		to      string // what is common to all that is looked at
		lost    string // to>from
		good    string
	}{
		{
			"one address", []stream{{vips: vips("10.96.0.1:53"), serving: endpointsOf("1 2")}}, false,
			"10.96.0.1:53", "10.96.0.1:53>10.0.0.3:80 10.96.0.1:53>10.0.0.1:81", "10.96.0.1:53>10.0.0.1:80 10.96.0.1:54>10.0.0.3:80 10.96.0.2:53>10.0.0.3:80",
		},
		{
			"two ports", []stream{{vips: vips("10.96.0.1:53")}, {vips: vips("10.96.0.1:54"), serving: endpointsOf("1")}}, false,
			"10.96.0.1:0", "10.96.0.1:53>10.0.0.1:80 10.96.0.1:54>10.0.0.2:80", "10.96.0.1:54>10.0.0.1:80",
		},
		{
			"two addresses", []stream{{vips: vips("10.96.0.1:53 192.0.2.1:53"), serving: endpointsOf("1")}}, false,
			"invalid AddrPort", "192.0.2.1:53>10.0.0.2:80", "192.0.2.1:53>10.0.0.1:80",
		},
		{
			"a port of the node", []stream{{vips: vips("10.96.0.1:53"), nodePort: 30053, serving: endpointsOf("1")}}, false,
			"invalid AddrPort", "203.0.113.1:30053>10.0.0.2:80 10.96.0.1:53>10.0.0.2:80", "203.0.113.1:30053>10.0.0.1:80 203.0.113.1:53>10.0.0.2:80",
		},
		{
			"the other family", []stream{{vips: vips("10.96.0.1:53")}, {six: true, vips: vips("[fd00::1]:53")}}, true,
			"[fd00::1]:53", "[fd00::1]:53>[fd00::2]:80", "10.96.0.1:53>10.0.0.1:80",
		},
	} {
		l := lanesOf(c.streams, c.six)
		if f := l.filter(c.six); f.To.String() != c.to || f.Protocol != udp || f.Six != c.six || f.Unanswered {
			t.Errorf("%s: filter %+v, want %s", c.name, f, c.to)
		}
		for want, list := range map[bool]string{true: c.lost, false: c.good} {
			for _, s := range strings.Fields(list) {
				to, from, _ := strings.Cut(s, ">")
				if got := l.lost(flow(to, from)); got != want {
					t.Errorf("%s: %s lost: %v", c.name, s, got)
				}
			}
		}
	}
	other := flow("10.96.0.1:53", "10.0.0.3:80")
	other.Protocol = tcp
	if lanesOf([]stream{{vips: vips("10.96.0.1:53")}}, false).lost(other) {
		t.Error("TCP is looked at as if it were UDP")
	}
}

func TestOpeningsLost(t *testing.T) {
	o := openings{netip.MustParseAddrPort("10.0.0.1:80"): true}
	for _, c := range []struct {
		state uint8
		from  string
		want  bool
	}{{1, "10.0.0.1:80", true}, {3, "10.0.0.1:80", false}, {1, "10.0.0.1:81", false}, {1, "10.0.0.2:80", false}} {
		f := &conntrack.Flow{Protocol: tcp, State: c.state, Answered: conntrack.Ends{From: netip.MustParseAddrPort(c.from)}}
		if got := o.lost(f); got != c.want {
			t.Errorf("%s: %v", fmt.Sprint(c), got)
		}
	}
}
