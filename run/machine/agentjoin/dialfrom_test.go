package agentjoin

import (
	"net"
	"net/netip"
	"testing"
)

// TestDialFrom checks that connections are made from the address of --node-ip if the machine has it, and from another one
// otherwise.
func TestDialFrom(t *testing.T) {
	var own netip.Addr
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		if p, err := netip.ParsePrefix(x.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
			own = p.Addr()
		}
	}
	if !own.IsValid() {
		t.Skip("this machine has no address but loopback")
	}
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, six := netip.MustParseAddr("192.0.2.77"), netip.MustParseAddr("2001:db8::77")
	for _, tt := range []struct {
		own  []netip.Addr
		to   string
		want string
	}{
		{nil, "127.0.0.1", "127.0.0.1"},
		{[]netip.Addr{own}, own.String(), own.String()},
		{[]netip.Addr{six, own}, own.String(), own.String()},
		{[]netip.Addr{own}, "localhost", own.String()},
		{[]netip.Addr{own}, "127.0.0.1", "127.0.0.1"},
		{[]netip.Addr{elsewhere}, "127.0.0.1", "127.0.0.1"},
		{[]netip.Addr{elsewhere}, own.String(), own.String()},
	} {
		conn, err := DialFrom(tt.own)(t.Context(), "tcp4", net.JoinHostPort(tt.to, port))
		if err != nil {
			t.Errorf("%v to %s: %v", tt.own, tt.to, err)
			continue
		}
		if got := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(); got.String() != tt.want {
			t.Errorf("%v to %s: from %s, want %s", tt.own, tt.to, got, tt.want)
		}
		conn.Close()
	}
}
