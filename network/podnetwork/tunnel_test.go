package podnetwork

import (
	"testing"

	"github.com/vishvananda/netlink"

	"proa.dev/network/nettest"
)

func TestMTUOfPodsFitsTheTunnel(t *testing.T) {
	c := dualStack(t.TempDir())
	c.Tunnel = "tt0"
	x := startNode(t, c)
	mtuOf := func(id string) (mtu int) {
		p := x.addPod(id, nil)
		p.Do(func() {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				t.Error(err)
				return
			}
			mtu = link.Attrs().MTU
		})
		return mtu
	}
	full := mtuOf("before")
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = c.Tunnel, full-50
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		t.Fatal(err)
	}
	defer nettest.Unplug(c.Tunnel)
	if got := mtuOf("after"); got != full-50 {
		t.Errorf("the MTU of a Pod is %d, and of the tunnel %d", got, full-50)
	}
	nettest.Unplug(c.Tunnel)
	if got := mtuOf("at last"); got != full {
		t.Errorf("the MTU of a Pod without a tunnel is %d, want %d", got, full)
	}
}
