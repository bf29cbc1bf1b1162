package podnetwork

import (
	"testing"

	"github.com/google/nftables"

	"proa.dev/network/nettest"
	"proa.dev/network/nft"
)

// TestFirewallThatDropsForwardedPackets uses the FORWARD chain that Docker leaves on many machines.
func TestFirewallThatDropsForwardedPackets(t *testing.T) {
	x := startNode(t, dualStack(t.TempDir()))
	outside := nettest.New(t)
	nettest.Wire(t, nettest.End{NS: nettest.Home(t), Name: "out0", Addrs: []string{"192.168.9.1/24", "fd99::1/64"}},
		nettest.End{NS: outside, Name: "eth0", Addrs: []string{"192.168.9.2/24", "fd99::2/64"}})
	t.Cleanup(func() { nettest.Unplug("out0") })
	outside.Listen("tcp", ":7", "outside")
	a := x.addPod("a", nil)

	kernel, err := nft.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	chains := map[nftables.TableFamily]*nftables.Chain{}
	build := func(c *nftables.Conn) error {
		for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
			drop := nftables.ChainPolicyDrop
			table := c.AddTable(&nftables.Table{Family: family, Name: "filter"})
			chains[family] = c.AddChain(&nftables.Chain{Table: table, Name: "FORWARD", Type: nftables.ChainTypeFilter,
				Hooknum:  nftables.ChainHookForward,
				Priority: nftables.ChainPriorityFilter, Policy: &drop})
		}
		return nil
	}
	if err := kernel.Do(build); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		k, err := nft.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		if err := k.Do(func(c *nftables.Conn) error {
			for _, chain := range chains {
				c.DelTable(chain.Table)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	rules := func() (n int) {
		if err := kernel.Do(func(c *nftables.Conn) error {
			for _, chain := range chains {
				list, err := c.GetRules(chain.Table, chain)
				if err != nil {
					return err
				}
				n += len(list)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if !a.Silent("tcp", "192.168.9.2:7") {
		t.Fatal("the firewall drops no packets")
	}
	for range 2 { // the second time there is nothing to do
		x.n.repairRules()
		nettest.Same(t, "IPv4", a.Ask("tcp", "192.168.9.2:7"), "outside 192.168.9.1")
		nettest.Same(t, "IPv6", a.Ask("tcp", "[fd99::2]:7"), "outside fd99::1")
		if n := rules(); n != 4 {
			t.Errorf("%d rules in the firewall, want one from and one to the Pods of each family", n)
		}
	}
	if err := kernel.Unpass("proa"); err != nil || rules() != 4 {
		t.Errorf("another cluster removes rules that are not its own: %v", err)
	}
	if err := kernel.Unpass(x.conf.Table); err != nil {
		t.Fatal(err)
	}
	if n := rules(); n != 0 {
		t.Errorf("%d rules are left", n)
	}
}
