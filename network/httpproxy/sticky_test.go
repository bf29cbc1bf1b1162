package httpproxy

import (
	"fmt"
	"net/netip"
	"testing"
)

// TestStickySessions checks that clients keep their endpoints while others are added and removed, and are spread over them.
func TestStickySessions(t *testing.T) {
	p := NewPool(Ref{Protocol: HTTP, Sticky: true})
	at := func(from, to int) (out []netip.AddrPort) {
		for i := from; i < to; i++ {
			out = append(out, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80))
		}
		return out
	}
	const clients = 400
	choose := func() map[string]string {
		out := map[string]string{}
		for i := range clients {
			client := fmt.Sprintf("192.0.2.%d", i)
			first, again := p.pick(client, nil), p.pick(client, nil)
			if first != again {
				t.Fatalf("%s is sent to %s and to %s", client, first.addr, again.addr)
			}
			out[client] = first.addr
		}
		return out
	}
	p.Set(at(1, 5))
	before, count := choose(), map[string]int{}
	for _, e := range before {
		count[e]++
	}
	for e, n := range count {
		if n < clients/4/2 || n > clients/4*2 {
			t.Errorf("%s has %d of %d clients", e, n, clients)
		}
	}
	p.Set(at(2, 5)) // the first is removed
	for client, e := range choose() {
		if was := before[client]; was != e && was != "10.0.0.1:80" {
			t.Errorf("%s was moved from %s to %s", client, was, e)
		}
	}
	p.Set(at(1, 5)) // and added again
	if after := choose(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Error("clients do not return to their endpoints")
	}
	// An endpoint that could not be reached is not tried, unless there is no other.
	own := p.pick("192.0.2.1", nil)
	own.avoid()
	other := p.pick("192.0.2.1", nil)
	if other == own {
		t.Error("an endpoint that could not be reached is tried")
	}
	live := *p.live.Load()
	var rest []*endpoint
	for _, e := range live {
		if e != own {
			rest = append(rest, e)
		}
	}
	if p.pick("192.0.2.1", rest) != own || p.pick("192.0.2.1", live) != nil {
		t.Error("the last endpoint is not tried, or one twice")
	}
}
