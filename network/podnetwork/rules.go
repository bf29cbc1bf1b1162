package podnetwork

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"proa.dev/network/cni"
	"proa.dev/network/nft"
)

// rules is the nftables table of the Pod network: it forwards host ports to Pods and masquerades packets that leave the
// cluster.
type rules struct {
	kernel *nft.Kernel

	mu       sync.Mutex // guards what follows
	ports    map[cni.Attachment][]hostPort
	families []familySets
	sources  *sources
}

// familySets are the sets of one address family.
type familySets struct {
	nft.Family
	anywhere *nftables.Set // from protocol and host port, on all addresses of the node, to address and port of a Pod
	at       *nftables.Set // the same for single addresses of the node
	hairpin  *nftables.Set // Pods with host ports, which may reach themselves through them
}

func setsFor(t *nftables.Table, f nft.Family) familySets {
	return familySets{
		Family: f,
		anywhere: &nftables.Set{Table: t, Name: "hostports" + f.Digit(), IsMap: true, Concatenation: true,
			KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService), DataType: f.Zone()},
		at: &nftables.Set{Table: t, Name: "hostports-at" + f.Digit(), IsMap: true, Concatenation: true, KeyType: f.Tuple(),
			DataType: f.Zone()},
		hairpin: &nftables.Set{Table: t, Name: "hairpin" + f.Digit(), Concatenation: true, KeyType: f.Pair()},
	}
}

// write replaces the table by one for the attached Pods, in one transaction.
func (r *rules) write(c Config, records []*record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ports, r.families = map[cni.Attachment][]hostPort{}, nil
	err := r.kernel.Do(func(conn *nftables.Conn) error {
		t := nft.Renew(conn, c.Table)
		for _, f := range nft.Families() {
			sets := setsFor(t, f)
			for _, s := range []*nftables.Set{sets.anywhere, sets.at, sets.hairpin} {
				if err := nft.AddSet(conn, s); err != nil {
					return err
				}
			}
			r.families = append(r.families, sets)
		}
		r.chains(conn, t, c)
		for _, rec := range records {
			if rec.Deleted || len(rec.Ports) == 0 {
				continue
			}
			r.ports[rec.key()] = rec.Ports
			if err := r.elements(rec, conn.SetAddElements); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write the rules of the pod network: %w", err)
	}
	return r.writeSources(c, records)
}

// exist reports whether the kernel has our tables.
func (r *rules) exist(table string) (bool, error) {
	r.mu.Lock()
	bridge := !r.sources.missing
	r.mu.Unlock()
	has, err := r.kernel.Has(table)
	if has && err == nil && bridge {
		return r.kernel.HasBridge(table)
	}
	return has, err
}

func (r *rules) chains(conn *nftables.Conn, t *nftables.Table, c Config) {
	chain := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
		return conn.AddChain(&nftables.Chain{Name: name, Table: t, Type: kind, Hooknum: hook, Priority: priority})
	}
	rule := func(chain *nftables.Chain, words ...[]expr.Any) {
		conn.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: nft.Rule(words...)})
	}

	ports := conn.AddChain(&nftables.Chain{Name: "hostports", Table: t})
	for _, f := range r.families {
		rule(ports, f.Match(), f.LoadTuple(), nft.Find(f.at), f.Translate())
		rule(ports, f.Match(), nft.LoadPort(), nft.Find(f.anywhere), f.Translate())
	}
	in := chain("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	rule(in, nft.ToLocal(), nft.Jump(ports.Name))
	// Connections of the node itself do not pass prerouting, so host ports need an output chain too.
	out := chain("output", nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest)
	rule(out, nft.ToLocal(), nft.Jump(ports.Name))

	post := chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	for _, f := range r.families {
		rule(post, f.Match(), nft.Translated(), f.LoadPair(), nft.Element(f.hairpin), nft.Masquerade())
	}
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	rule(post, nft.Out(c.Bridge), nft.From(loopback), nft.Masquerade())
	leaving := conn.AddChain(&nftables.Chain{Name: "leaving", Table: t})
	for _, p := range c.PodCIDRs {
		rule(post, nft.NotOut(c.Bridge), nft.From(p), nft.Goto(leaving.Name))
	}
	for _, p := range append([]netip.Prefix{netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("ff00::/8")}, c.ClusterCIDRs...) {
		rule(leaving, nft.To(p), nft.Return())
	}
	rule(leaving, nft.Masquerade())

	// The bridge may route 127.0.0.0/8, so that host ports work on localhost. That must not let others reach what
	// listens on the loopback interface of the node only: not Pods, and not other machines if route_localnet is enabled
	// for other interfaces too.
	guard := chain("guard", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw)
	rule(guard, nft.NotIn("lo"), nft.To(loopback), nft.Drop())
	rule(guard, nft.NotIn("lo"), nft.From(loopback), nft.Drop())
	// The node sends no ICMP redirects to Pods: traffic between Pods must pass the node, where the rules apply.
	redirect := chain("redirect", nftables.ChainTypeFilter, nftables.ChainHookOutput, nftables.ChainPriorityFilter)
	const icmpRedirect, ndRedirect = 5, 137
	rule(redirect, nft.Out(c.Bridge), nft.IPv4().Match(), nft.Protocol(unix.IPPROTO_ICMP), nft.ICMPType(icmpRedirect), nft.Drop())
	rule(redirect, nft.Out(c.Bridge), nft.IPv6().Match(), nft.Protocol(unix.IPPROTO_ICMPV6), nft.ICMPType(ndRedirect), nft.Drop())
}

// elements calls do with the elements of the host ports of a Pod, to add or delete them.
func (r *rules) elements(rec *record, do func(*nftables.Set, []nftables.SetElement) error) error {
	for _, f := range r.families {
		var anywhere, at, hairpin []nftables.SetElement
		for _, a := range rec.Addresses {
			if a.Is6() != f.Is6() {
				continue
			}
			for _, p := range rec.Ports {
				if !p.serves(a) {
					continue
				}
				to := nft.Key(a, p.ContainerPort)
				if p.isAnywhere() {
					anywhere = append(anywhere, nftables.SetElement{Key: nft.Key(p.number(), p.HostPort), Val: to})
				} else {
					at = append(at, nftables.SetElement{Key: nft.Key(p.HostIP, p.number(), p.HostPort), Val: to})
				}
			}
			hairpin = append(hairpin, nftables.SetElement{Key: nft.Key(a, a)})
		}
		for s, list := range map[*nftables.Set][]nftables.SetElement{f.anywhere: anywhere, f.at: at, f.hairpin: hairpin} {
			if len(list) == 0 {
				continue
			}
			if err := do(s, list); err != nil {
				return err
			}
		}
	}
	return nil
}

// open allows a Pod to send from its addresses, and forwards its host ports. A port of another Pod is refused.
func (r *rules) open(rec *record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, theirs := range r.ports {
		for _, a := range theirs {
			for _, b := range rec.Ports {
				if key != rec.key() && a.overlaps(b) {
					return cni.Errorf(cni.InvalidConfig, "host port %d/%s is in use by container %s", b.HostPort, b.Protocol,
						key.ContainerID)
				}
			}
		}
	}
	if len(rec.Ports) == 0 && r.sources.missing {
		return nil
	}
	err := r.kernel.Do(func(c *nftables.Conn) error {
		if !r.sources.missing {
			if err := r.sources.elements(rec, c.SetAddElements); err != nil {
				return err
			}
		}
		if len(rec.Ports) == 0 {
			return nil
		}
		return r.elements(rec, c.SetAddElements)
	})
	if err != nil {
		return fmt.Errorf("write the rules for the Pod: %w", err)
	}
	r.sources.known[rec.HostIf] = true
	if len(rec.Ports) > 0 {
		r.ports[rec.key()] = rec.Ports
	}
	return nil
}

// shut closes the host ports of a Pod, if they are open.
func (r *rules) shut(rec *record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ports[rec.key()] == nil {
		return nil
	}
	err := r.kernel.Do(func(c *nftables.Conn) error { return r.elements(rec, c.SetDeleteElements) })
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("close the host ports: %w", err)
	}
	delete(r.ports, rec.key())
	return nil
}
