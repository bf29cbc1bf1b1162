package service

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

// TestRandomChanges makes many changes of all kinds and compares what is in the kernel with what is wanted after each
// transaction. Some transactions fail in between, and some chains get old.
func TestRandomChanges(t *testing.T) {
	nettest.Need(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	tab, err := newTable(settings{"proa-random", 0x4000, clusterCIDRs, serviceCIDRs}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tab.close()
		if err := Purge("proa-random"); err != nil {
			t.Error(err)
		}
	})
	home := nettest.Home(t)
	for round := range 60 {
		for range 1 + r.IntN(4) {
			i := r.IntN(12)
			tab.set(key{"default", fmt.Sprint("s", i)}, randomPorts(r, i))
		}
		switch {
		case r.IntN(20) == 0:
			tab.built = false
		case r.IntN(20) == 0:
			if err := tab.kernel.Remove(tab.name); err != nil {
				t.Fatal(err)
			}
			if r.IntN(2) == 0 {
				tab.check()
			} else if tab.commit() == nil {
				t.Log("nothing to do without a table")
				tab.check()
			}
		case r.IntN(5) == 0:
			for name := range tab.stale {
				tab.stale[name] = time.Now().Add(-time.Minute)
			}
		}
		if err := tab.commit(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if err := tab.settled(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if round%6 == 0 {
			home.Readable(t)
		}
	}
}

// settled compares until the kernel's answer is a whole one. A map that has just grown or shrunk is rehashed behind the
// transaction, and a dump of several messages in that moment leaves elements out or has them twice. What is in the map
// does not change any more, so a difference that is real stays.
func (t *table) settled() (err error) {
	for range 20 {
		if err = t.compare(); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// randomPorts makes up a Service: nothing, or ports of every kind. Some share addresses with others.
func randomPorts(r *rand.Rand, i int) (out []port) {
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
		p := port{name: fmt.Sprintf("default/s%d:p%d", i, n), protocol: []uint8{6, 17}[r.IntN(2)], six: six, clusterIP: plus(base, 1+r.IntN(10)),
			since: time.Unix(int64(r.IntN(3)), 0)}
		for range r.IntN([]int{2, 20, 900}[r.IntN(3)]) {
			p.cluster = append(p.cluster, netip.AddrPortFrom(plus(endpoint, 1+r.IntN(3000)), uint16(80+r.IntN(2))))
		}
		slices.SortFunc(p.cluster, compareAddrPort)
		p.cluster = slices.Compact(p.cluster)
		p.serving = p.cluster
		to := toCluster
		if len(p.cluster) == 0 {
			to = toReject
		}
		p.vips = []vip{{addr: p.clusterIP, port: uint16(80 + n), to: to}}
		if len(p.cluster) > 0 && r.IntN(3) == 0 {
			p.affinity = time.Duration(1+r.IntN(2)) * time.Hour
		}
		if r.IntN(2) == 0 {
			p.nodePort, p.nodeTo, p.external = uint16(30000+r.IntN(5)), toReject, policyNone
			if len(p.cluster) > 0 {
				p.nodeTo, p.external = toExternal, []policy{policyCluster, policyLocal, policyLocalNone}[r.IntN(3)]
			}
			if p.external == policyLocal {
				p.local = p.cluster[:1]
				p.hairpin = []netip.Addr{p.local[0].Addr()}
			}
			if r.IntN(2) == 0 && p.external != policyNone {
				p.sources = []netip.Prefix{netip.PrefixFrom(base, base.BitLen()-8)}
				p.vips = append(p.vips, vip{addr: plus(base, 200+r.IntN(3)), port: 443, to: toFirewall})
			}
		}
		out = append(out, p)
	}
	return out
}

func plus(a netip.Addr, n int) netip.Addr {
	b := a.AsSlice()
	binary.BigEndian.PutUint16(b[len(b)-2:], uint16(n))
	out, _ := netip.AddrFromSlice(b)
	return out
}

// dump reads a map or set of the table: key to value. What cannot be read has no elements, and that is a difference.
func (t *table) dump(s *nftables.Set) map[string]string {
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

// compare finds a difference between what is wanted and what the kernel has.
func (t *table) compare() error {
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
			if err := check(read(id.family.direct.set), id.element, d.want); err != nil {
				return fmt.Errorf("%v: directly: %w", k, err)
			}
		}
		for _, c := range have.chains {
			if c.endpoints == nil {
				continue
			}
			in := t.chains[c.name]
			total += len(c.endpoints)
			if err := check(read(in.set), in.key, c.endpoints); err != nil {
				return fmt.Errorf("%v: chain %s: %w", k, c.name, err)
			}
			if err := t.compareAffinity(in.affinity, c.endpoints, read); err != nil {
				return fmt.Errorf("%v: chain %s: %w", k, c.name, err)
			}
		}
	}
	if len(t.have) != len(t.services) {
		return fmt.Errorf("%d Services, %d are wanted", len(t.have), len(t.services))
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
					return fmt.Errorf("%s leads to %q, not %q", e.set.Name, read(e.set)[k], list[0].value)
				}
			}
		}
	}
	if total != 0 {
		return fmt.Errorf("%d endpoints too few are in maps", total)
	}
	return nil
}

// compareAffinity finds a difference in the maps of a chain with affinity: each place has the number of another endpoint.
func (t *table) compareAffinity(a *clientMemory, want []netip.AddrPort, read func(*nftables.Set) map[string]string) error {
	if a == nil {
		return nil
	}
	numbers, good := read(a.numbers), read(a.good)
	if len(numbers) != len(want) || len(good) != len(want) {
		return fmt.Errorf("%d numbers, %d good endpoints of %d", len(numbers), len(good), len(want))
	}
	found := map[string]string{}
	for place, number := range numbers {
		found[place] = good[number]
	}
	return check(found, func(i int) []byte { return nft.Native(uint32(i)) }, want)
}

func check(have map[string]string, id func(int) []byte, want []netip.AddrPort) error {
	left := map[string]bool{}
	for _, a := range want {
		left[string(nft.Key(a.Addr(), a.Port()))] = true
	}
	for i := range want {
		value := have[string(id(i))]
		if !left[value] {
			return fmt.Errorf("number %d is %x, which is wrong or there twice", i, value)
		}
		delete(left, value)
	}
	return nil
}
