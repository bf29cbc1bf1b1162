package podnetwork

import (
	"testing"

	"github.com/vishvananda/netlink"

	"proa.dev/network/nettest"
)

func TestPodsFitThroughTheTunnel(t *testing.T) {
	c := dualStack(t.TempDir())
	c.Tunnel = "tt0"
	x := start(t, c)
	size := func(id string) (mtu int) {
		p := x.pod(id, nil)
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
	whole := size("before")
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = c.Tunnel, whole-50
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		t.Fatal(err)
	}
	defer nettest.Unplug(c.Tunnel)
	if got := size("after"); got != whole-50 {
		t.Errorf("a Pod sends %d bytes at a time where the tunnel takes %d", got, whole-50)
	}
	nettest.Unplug(c.Tunnel)
	if got := size("at last"); got != whole {
		t.Errorf("a Pod sends %d bytes at a time without a tunnel, want %d", got, whole)
	}
}
