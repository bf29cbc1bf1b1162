package noderoutes

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"proa.dev/network/nettest"
	"proa.dev/network/nft"
)

// TestTunnelsOfOtherClustersAreNotGuarded checks that two clusters with tunnels on one machine, which use the same UDP
// port, do not affect each other: the rules of one accept all packets of the other's tunnel, and drop packets to its
// own tunnel from machines that are not nodes.
func TestTunnelsOfOtherClustersAreNotGuarded(t *testing.T) {
	nettest.Need(t)
	here, there := nettest.New(t), nettest.New(t)
	nettest.Wire(t, nettest.End{NS: here, Name: "eth0", Addrs: []string{"192.0.2.1/24"}},
		nettest.End{NS: there, Name: "eth0", Addrs: []string{"192.0.2.2/24"}})
	const port, own, other = 8472, 0x010203, 0x010204
	var listener net.PacketConn
	var err error
	here.Do(func() {
		var kernel *nft.Kernel
		if kernel, err = nft.Open(); err != nil {
			return
		}
		defer kernel.Close()
		m := &Mesh{Config: Config{Table: "proa-test-nodes", Port: port, ID: own}, kernel: kernel}
		if err = m.guardTunnel(wanted{ends: []end{{outside: netip.MustParseAddr("192.0.2.9")}}}); err == nil {
			listener, err = net.ListenPacket("udp", fmt.Sprintf(":%d", port))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c, err := there.Dial("udp", fmt.Sprintf("192.0.2.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, id := range []int{own, other} {
		if _, err := c.Write([]byte{8, 0, 0, 0, byte(id >> 16), byte(id >> 8), byte(id & 0xff), 0}); err != nil {
			t.Fatal(err)
		}
	}
	_ = listener.SetReadDeadline(time.Now().Add(20 * time.Second))
	got := make([]byte, 8)
	if _, _, err := listener.ReadFrom(got); err != nil || got[6] != other&0xff {
		t.Errorf("the first packet that arrives is % x, %v; want that of the other cluster", got, err)
	}
}
