package servicetable

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"

	"proa.dev/network/nettest"
	"proa.dev/network/nft"
)

// TestRandomChanges makes many changes of all kinds and compares the kernel with what is wanted after each transaction.
// Some transactions fail in between, and some chains are retired.
func TestRandomChanges(t *testing.T) {
	nettest.Need(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	tab, err := Open(Settings{"proa-random", 0x4000, clusterCIDRs, serviceCIDRs}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tab.Close()
		if err := Remove("proa-random"); err != nil {
			t.Error(err)
		}
	})
	home := nettest.Home(t)
	for round := range 60 {
		for range 1 + r.IntN(4) {
			i := r.IntN(12)
			tab.Set(key{Namespace: "default", Name: fmt.Sprint("s", i)}, randomPorts(r, i))
		}
		switch {
		case r.IntN(20) == 0:
			tab.built = false
		case r.IntN(20) == 0:
			if err := tab.kernel.Remove(tab.Name); err != nil {
				t.Fatal(err)
			}
			if r.IntN(2) == 0 {
				tab.CheckPresent()
			} else if tab.Commit() == nil {
				t.Log("there was nothing to write, so the missing table was not noticed")
				tab.CheckPresent()
			}
		case r.IntN(5) == 0:
			for name := range tab.stale {
				tab.stale[name] = time.Now().Add(-time.Minute)
			}
		}
		if err := tab.Commit(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := tab.compareEventually(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if round%6 == 0 {
			home.Readable(t)
		}
	}
}

// compareEventually compares until the dump of the kernel is consistent. A map that has just grown or shrunk is rehashed after the
// transaction, and a dump of several messages in that moment misses or repeats elements. A real difference stays.
func (t *Table) compareEventually() (err error) {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err = t.compare(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// randomPorts returns the ports of a random Service: none, or ports of every kind. Some share addresses with others.
func randomPorts(r *rand.Rand, i int) (out []Port) {
	if r.IntN(5) == 0 {
		return nil
	}
	for n := range 1 + r.IntN(2) {
		six := r.IntN(3) == 0
		base := netip.MustParseAddr("10.96.0.0")
		endpoint := netip.MustParseAddr("10.244.0.0")
		if six {
			base, endpoint = netip.MustParseAddr("fd00:96::"), netip.MustParseAddr("fd00:244::")
		}
		p := Port{Name: fmt.Sprintf("default/s%d:p%d", i, n), Protocol: []uint8{6, 17}[r.IntN(2)], IPv6: six,
			ClusterIP: withLast16Bits(base, 1+r.IntN(10)),
			Created:   time.Unix(int64(r.IntN(3)), 0)}
		for range r.IntN([]int{2, 20, 900}[r.IntN(3)]) {
			p.Cluster = append(p.Cluster, netip.AddrPortFrom(withLast16Bits(endpoint, 1+r.IntN(3000)), uint16(80+r.IntN(2))))
		}
		slices.SortFunc(p.Cluster, netip.AddrPort.Compare)
		p.Cluster = slices.Compact(p.Cluster)
		p.Serving = p.Cluster
		to := ToCluster
		if len(p.Cluster) == 0 {
			to = ToReject
		}
		p.VIPs = []VIP{{Addr: p.ClusterIP, Port: uint16(80 + n), Target: to}}
		if len(p.Cluster) > 0 && r.IntN(3) == 0 {
			p.Affinity = time.Duration(1+r.IntN(2)) * time.Hour
		}
		if r.IntN(2) == 0 {
			p.NodePort, p.NodePortTarget, p.External = uint16(30000+r.IntN(5)), ToReject, ExternalNone
			if len(p.Cluster) > 0 {
				p.NodePortTarget, p.External = ToExternal, []ExternalPolicy{ExternalCluster, ExternalLocal, ExternalLocalEmpty}[r.IntN(3)]
			}
			if p.External == ExternalLocal {
				p.Local = p.Cluster[:1]
				p.Hairpin = []netip.Addr{p.Local[0].Addr()}
			}
			if r.IntN(2) == 0 && p.External != ExternalNone {
				p.Sources = []netip.Prefix{netip.PrefixFrom(base, base.BitLen()-8)}
				p.VIPs = append(p.VIPs, VIP{Addr: withLast16Bits(base, 200+r.IntN(3)), Port: 443, Target: ToFirewall})
			}
		}
		out = append(out, p)
	}
	return out
}

// withLast16Bits returns the address with its last 16 bits replaced.
func withLast16Bits(a netip.Addr, n int) netip.Addr {
	b := a.AsSlice()
	binary.BigEndian.PutUint16(b[len(b)-2:], uint16(n))
	out, _ := netip.AddrFromSlice(b)
	return out
}

// dump reads a map or set of the table, from key to value. A failed read returns no elements, which the comparison reports.
func (t *Table) dump(s *nftables.Set) map[string]string {
	out := map[string]string{}
	_ = t.kernel.Do(func(c *nftables.Conn) error {
		list, err := c.GetSetElements(s)
		for _, e := range list {
			out[string(e.Key)] = string(e.Val)
		}
		return err
	})
	return out
}

// compare returns the first difference between what is wanted and what the kernel has.
func (t *Table) compare() error {
	total := 0
	dumps := map[*nftables.Set]map[string]string{}
	read := func(s *nftables.Set) map[string]string {
		if dumps[s] == nil {
			dumps[s] = t.dump(s)
		}
		return dumps[s]
	}
	for k, have := range t.have {
		for id, d := range have.direct {
			total += len(d.want)
			if err := compareEndpoints(read(id.family.direct.set), id.element, d.want); err != nil {
				return fmt.Errorf("%v: directly: %w", k, err)
			}
		}
		for _, c := range have.chains {
			if c.endpoints == nil {
				continue
			}
			in := t.chains[c.name]
			total += len(c.endpoints)
			if err := compareEndpoints(read(in.set), in.key, c.endpoints); err != nil {
				return fmt.Errorf("%v: chain %s: %w", k, c.name, err)
			}
			if err := t.compareAffinity(in.affinity, c.endpoints, read); err != nil {
				return fmt.Errorf("%v: chain %s: %w", k, c.name, err)
			}
		}
	}
	if len(t.have) != len(t.services) {
		return fmt.Errorf("%d Services, want %d", len(t.have), len(t.services))
	}
	for _, f := range t.families {
		for _, m := range f.maps() {
			total -= len(read(m.set))
		}
		for _, e := range f.elements() {
			if got, want := len(read(e.set)), len(e.claims); got != want {
				return fmt.Errorf("%s has %d elements, not %d", e.set.Name, got, want)
			}
			for k, list := range e.claims {
				// The verdict is still encoded; the chain's name is in it, and ends with a zero.
				chain, ok := strings.CutPrefix(list[0].value, gotoPrefix)
				if ok && !strings.Contains(read(e.set)[k], "\x00"+chain+"\x00") {
					return fmt.Errorf("%s has the verdict %q, want %q", e.set.Name, read(e.set)[k], list[0].value)
				}
			}
		}
	}
	if total != 0 {
		return fmt.Errorf("%d endpoints are missing in maps", total)
	}
	return nil
}

// compareAffinity returns the first difference in the maps of a chain with affinity.
func (t *Table) compareAffinity(a *clientSets, want []netip.AddrPort, read func(*nftables.Set) map[string]string) error {
	if a == nil {
		return nil
	}
	numbers, good := read(a.numbers), read(a.good)
	if len(numbers) != len(want) || len(good) != len(want) {
		return fmt.Errorf("%d numbers, %d good endpoints of %d", len(numbers), len(good), len(want))
	}
	found := map[string]string{}
	for position, number := range numbers {
		found[position] = good[number]
	}
	return compareEndpoints(found, func(i int) []byte { return nft.Native(uint32(i)) }, want)
}

// compareEndpoints checks that each number has one of the wanted endpoints, and none occurs twice.
func compareEndpoints(have map[string]string, id func(int) []byte, want []netip.AddrPort) error {
	remaining := map[string]bool{}
	for _, a := range want {
		remaining[string(nft.Key(a.Addr(), a.Port()))] = true
	}
	for i := range want {
		value := have[string(id(i))]
		if !remaining[value] {
			return fmt.Errorf("number %d is %x, which is wrong or occurs twice", i, value)
		}
		delete(remaining, value)
	}
	return nil
}
