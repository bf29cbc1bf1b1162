package policy

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"proa.dev/network/nft"
)

// table is our table in the kernel. It is only there while a Pod of this node is behind a wall: where there are no policies,
// no packet pays for them. After a failure the whole table is written again.
type table struct {
	name    string
	answers []netip.Addr
	kernel  *nft.Kernel
	log     *slog.Logger

	state  tableState
	handle *nftables.Table
	sets   map[string]*set // what the kernel has
	chains map[string]bool
	stale  map[string]time.Time // chains without lines, which shall be deleted
}

type tableState int

const (
	unknown tableState = iota // an earlier process may have left one
	absent
	built
)

// rest is how long a chain without lines is kept. Older kernels count a chain as in use for a moment after the last element
// that leads to it is gone.
const rest = time.Second

// later is when chains are due to be deleted.
func (t *table) later() <-chan time.Time {
	if len(t.stale) == 0 {
		return nil
	}
	return time.After(rest)
}

// check notices that somebody has removed the table; it will be written again.
func (t *table) check() {
	if t.state != built {
		return
	}
	if has, err := t.kernel.Has(t.name); !has || err != nil {
		t.log.Warn("somebody has removed the rules of network policies; they are written again", "table", t.name, "err", err)
		t.state = unknown
	}
}

// commit brings the kernel to the plan, in one transaction.
func (t *table) commit(w *world) error {
	if !w.isolated() {
		return t.remove(w)
	}
	due := t.due()
	if t.state == built && len(w.touchedSets) == 0 && len(w.touchedChains) == 0 && len(due) == 0 {
		return nil
	}
	rebuild := t.state != built
	err := t.kernel.Do(func(c *nftables.Conn) error {
		if rebuild {
			due = nil // they go with the old table
			if err := t.base(c, w); err != nil {
				return err
			}
		}
		return t.write(c, w, due)
	})
	if err != nil {
		t.state = unknown
		return fmt.Errorf("write the rules of network policies: %w", err)
	}
	t.state = built
	for _, name := range due {
		delete(t.stale, name)
	}
	w.settle()
	return nil
}

// remove takes the table away when nobody needs it.
func (t *table) remove(w *world) error {
	if t.state != absent {
		if err := t.kernel.Remove(t.name); err != nil {
			t.state = unknown
			return fmt.Errorf("remove the rules of network policies: %w", err)
		}
	}
	t.state, t.stale = absent, nil
	w.settle()
	return nil
}

func (t *table) due() (out []string) {
	for name, since := range t.stale {
		if time.Since(since) >= rest {
			out = append(out, name)
		}
	}
	return out
}

// base begins the table anew, with everything that does not depend on policies.
//
// What a Pod sends is judged where packets are passed on, after the address of a Service has become that of a Pod and before
// anybody's address becomes that of the node. First by the policies of who sends, then in a chain of its own by those of who
// receives, so that each can accept for itself. What the node itself sends to Pods is not passed on and not judged.
func (t *table) base(c *nftables.Conn, w *world) error {
	t.handle = nft.Renew(c, t.name)
	t.sets, t.chains, t.stale = map[string]*set{}, map[string]bool{}, map[string]time.Time{}
	for name := range w.sets {
		w.touchedSets[name] = true
	}
	for name := range w.chains {
		w.touchedChains[name] = true
	}
	for _, s := range []*set{w.judges[ingress], w.judges[egress], w.itself} {
		if err := t.addSet(c, s); err != nil {
			return err
		}
	}
	hook := func(name string, hook *nftables.ChainHook, priority nftables.ChainPriority) *nftables.Chain {
		return c.AddChain(&nftables.Chain{Table: t.handle, Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: &priority})
	}
	rule := func(chain *nftables.Chain, words ...[]expr.Any) {
		c.AddRule(&nftables.Rule{Table: t.handle, Chain: chain, Exprs: nft.Rule(words...)})
	}
	from := hook("from-pods", nftables.ChainHookForward, *nftables.ChainPriorityFilter)
	to := hook("to-pods", nftables.ChainHookForward, *nftables.ChainPriorityFilter+1)
	node := hook("to-node", nftables.ChainHookInput, *nftables.ChainPriorityFilter)
	for _, chain := range []*nftables.Chain{from, to, node} {
		rule(chain, nft.Known(), nft.Accept())
	}
	for _, f := range nft.Families() {
		for _, chain := range []*nftables.Chain{from, to} {
			rule(chain, f.Match(), f.LoadPair(), nft.Element(t.kernelSet(w.itself, f)), nft.Accept())
		}
		rule(from, f.Match(), f.LoadSource(), nft.Switch(t.kernelSet(w.judges[egress], f)))
		rule(to, f.Match(), f.LoadDestination(), nft.Switch(t.kernelSet(w.judges[ingress], f)))
		// The node answers names in place of the Pods that do so elsewhere, and who may not reach those shall not ask it.
		for _, a := range t.answers {
			if a.Is6() == f.Is6() {
				rule(node, nft.To(netip.PrefixFrom(a, a.BitLen())), f.LoadSource(), nft.Switch(t.kernelSet(w.judges[egress], f)))
			}
		}
	}
	return nil
}

// write adds the changes to a transaction: first what others need, then what leads to it, last what nobody needs any more.
func (t *table) write(c *nftables.Conn, w *world, due []string) error {
	changedChains, changedSets := slices.Sorted(maps.Keys(w.touchedChains)), slices.Sorted(maps.Keys(w.touchedSets))
	for _, name := range changedChains {
		if w.chains[name] != nil && !t.chains[name] {
			c.AddChain(&nftables.Chain{Table: t.handle, Name: name})
		}
	}
	for _, name := range changedSets {
		if s := w.sets[name]; s != nil {
			if err := t.writeSet(c, s); err != nil {
				return err
			}
		}
	}
	for _, name := range changedChains {
		t.writeChain(c, w, name)
	}
	for _, name := range changedSets {
		if old := t.sets[name]; old != nil && w.sets[name] == nil {
			for _, f := range nft.Families() {
				c.DelSet(t.kernelSet(old, f))
			}
			delete(t.sets, name)
		}
	}
	for _, name := range due {
		if w.chains[name] == nil {
			c.DelChain(&nftables.Chain{Table: t.handle, Name: name})
		}
	}
	return nil
}

// writeSet brings the elements of a set to what they shall be. One that the kernel does not have gets all of them.
func (t *table) writeSet(c *nftables.Conn, s *set) error {
	if t.sets[s.name] == nil {
		if err := t.addSet(c, s); err != nil {
			return err
		}
	} else if !t.fresh(s) {
		t.sets[s.name] = s
		return t.changeSet(c, s)
	}
	for _, f := range nft.Families() {
		var list []nftables.SetElement
		for _, x := range s.spans {
			if x.first.Is6() == f.Is6() {
				list = append(list, nft.Span(x.first, x.last)...)
			}
		}
		for e, to := range s.elements {
			if e.addr.Is6() == f.Is6() {
				list = append(list, t.element(s, e, to))
			}
		}
		if err := nft.InChunks(t.kernelSet(s, f), list, c.SetAddElements); err != nil {
			return err
		}
	}
	return nil
}

// fresh tells whether a set was added in this transaction, and is empty yet.
func (t *table) fresh(s *set) bool {
	return t.state != built && (s.name == "ingress" || s.name == "egress" || s.name == "itself")
}

func (t *table) changeSet(c *nftables.Conn, s *set) error {
	for _, f := range nft.Families() {
		var del, add []nftables.SetElement
		for e, was := range s.touched {
			now, there := s.elements[e]
			if e.addr.Is6() != f.Is6() || was.there == there && was.value == now {
				continue
			}
			if was.there {
				del = append(del, t.element(s, e, was.value))
			}
			if there {
				add = append(add, t.element(s, e, now))
			}
		}
		k := t.kernelSet(s, f)
		if err := nft.InChunks(k, del, c.SetDeleteElements); err != nil {
			return err
		}
		if err := nft.InChunks(k, add, c.SetAddElements); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) addSet(c *nftables.Conn, s *set) error {
	for _, f := range nft.Families() {
		if err := nft.AddSet(c, t.kernelSet(s, f)); err != nil {
			return err
		}
	}
	t.sets[s.name] = s
	return nil
}

// comment is how long a text the kernel's tools show beside a set, for people.
const comment = 100

// kernelSet is a set as the kernel knows it, of one family.
func (t *table) kernelSet(s *set, f nft.Family) *nftables.Set {
	out := &nftables.Set{Table: t.handle, Name: s.name + "-" + f.Digit(), KeyType: f.AddrType, Comment: s.text[:min(len(s.text), comment)]}
	switch {
	case s.name == "ingress" || s.name == "egress":
		out.IsMap, out.DataType = true, nftables.TypeVerdict
	case s.name == "itself":
		out.Concatenation, out.KeyType = true, f.Pair()
	case s.named != nil:
		out.Concatenation, out.KeyType = true, f.Tuple()
	case s.spans != nil:
		out.Interval = true
	}
	return nft.Numbered(out)
}

func (t *table) element(s *set, e element, to string) nftables.SetElement {
	switch {
	case to != "":
		return nftables.SetElement{Key: nft.Key(e.addr), VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: to}}
	case s.name == "itself":
		return nftables.SetElement{Key: nft.Key(e.addr, e.addr)}
	case s.named != nil:
		return nftables.SetElement{Key: nft.Key(e.addr, e.protocol, e.port)}
	}
	return nftables.SetElement{Key: nft.Key(e.addr)}
}

// writeChain brings a chain to what it shall be. One that nobody uses is emptied, and deleted later.
func (t *table) writeChain(c *nftables.Conn, w *world, name string) {
	chain := &nftables.Chain{Table: t.handle, Name: name}
	want := w.chains[name]
	if t.chains[name] {
		c.FlushChain(chain)
	}
	if want == nil {
		if t.chains[name] {
			delete(t.chains, name)
			t.stale[name] = time.Now()
		}
		return
	}
	t.chains[name] = true
	delete(t.stale, name)
	for _, l := range want.lines {
		for _, words := range t.rules(w, l) {
			c.AddRule(&nftables.Rule{Table: t.handle, Chain: chain, Exprs: words})
		}
	}
}

// rules are the rules of a line: one for each family if it is about addresses.
func (t *table) rules(w *world, l line) (out [][]expr.Any) {
	end := map[verdict][]expr.Any{accept: nft.Accept(), drop: nft.Drop(), jump: nft.Jump(l.chain)}[l.verdict]
	if l.protocol != 0 {
		var ports []expr.Any
		if l.first != 0 || l.last != 65535 {
			ports = nft.ToPorts(l.first, l.last)
		}
		end = nft.Rule(nft.Protocol(l.protocol), ports, end)
	}
	if l.from == "" && l.to == "" && l.named == "" {
		return [][]expr.Any{end}
	}
	for _, f := range nft.Families() {
		words := f.Match()
		if l.from != "" {
			words = nft.Rule(words, f.LoadSource(), nft.Element(t.kernelSet(w.sets[l.from], f)))
		}
		if l.to != "" {
			words = nft.Rule(words, f.LoadDestination(), nft.Element(t.kernelSet(w.sets[l.to], f)))
		}
		if l.named != "" {
			words = nft.Rule(words, f.LoadTuple(), nft.Element(t.kernelSet(w.sets[l.named], f)))
		}
		out = append(out, nft.Rule(words, end))
	}
	return out
}
