package networkpolicy

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

// table is the nftables table. It exists only while a Pod of this node is isolated, so that packets cost nothing extra
// without policies. After a failure the whole table is written again.
type table struct {
	name    string
	answers []netip.Addr
	kernel  *nft.Kernel
	log     *slog.Logger

	state  tableState
	handle *nftables.Table
	sets   map[string]*set // the sets in the kernel
	chains map[string]bool
	stale  map[string]time.Time // chains without rules, which are to be deleted, and since when
}

type tableState int

const (
	unknown tableState = iota // an earlier process may have left a table
	absent
	built
)

// retireDelay is how long a chain without rules is kept. Older kernels count a chain as in use for a moment after the
// last element that leads to it is deleted.
const retireDelay = time.Second

// deletionDue receives a value when commit is to be called to delete chains without rules.
func (t *table) deletionDue() <-chan time.Time {
	if len(t.stale) == 0 {
		return nil
	}
	return time.After(retireDelay)
}

// checkPresent makes the next commit write the whole table if another program has removed it.
func (t *table) checkPresent() {
	if t.state != built {
		return
	}
	if has, err := t.kernel.Has(t.name); !has || err != nil {
		t.log.Warn("the rules of network policies were removed by another program; they are written again", "table", t.name, "err", err)
		t.state = unknown
	}
}

// commit writes the changes of the plan in one transaction.
func (t *table) commit(w *model) error {
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
			due = nil // they are removed with the old table
			if err := t.create(c, w); err != nil {
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
	w.markWritten()
	return nil
}

// remove removes the table when no Pod is isolated.
func (t *table) remove(w *model) error {
	if t.state != absent {
		if err := t.kernel.Remove(t.name); err != nil {
			t.state = unknown
			return fmt.Errorf("remove the rules of network policies: %w", err)
		}
	}
	t.state, t.stale = absent, nil
	w.markWritten()
	return nil
}

func (t *table) due() (out []string) {
	for name, since := range t.stale {
		if time.Since(since) >= retireDelay {
			out = append(out, name)
		}
	}
	return out
}

// create replaces the table in the kernel by one with everything that does not depend on policies.
//
// Packets of Pods are checked in the forward hook, after the address of a Service was translated to that of a Pod and
// before masquerading. The policies of the sender are checked first, then in a chain of its own those of the receiver,
// so that each can accept for itself. Packets that the node itself sends to Pods are not forwarded and not checked.
func (t *table) create(c *nftables.Conn, w *model) error {
	t.handle = nft.Renew(c, t.name)
	t.sets, t.chains, t.stale = map[string]*set{}, map[string]bool{}, map[string]time.Time{}
	for name := range w.sets {
		w.touchedSets[name] = true
	}
	for name := range w.chains {
		w.touchedChains[name] = true
	}
	for _, s := range []*set{w.isolationMaps[ingress], w.isolationMaps[egress], w.itself} {
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
		rule(from, f.Match(), f.LoadSource(), nft.Switch(t.kernelSet(w.isolationMaps[egress], f)))
		rule(to, f.Match(), f.LoadDestination(), nft.Switch(t.kernelSet(w.isolationMaps[ingress], f)))
		// The node serves DNS in place of DNS Pods, so egress policies apply to its DNS address too.
		for _, a := range t.answers {
			if a.Is6() == f.Is6() {
				rule(node, nft.To(netip.PrefixFrom(a, a.BitLen())), f.LoadSource(), nft.Switch(t.kernelSet(w.isolationMaps[egress], f)))
			}
		}
	}
	return nil
}

// write adds the changes to a transaction: first chains and sets, then the rules that use them, last the deletions.
func (t *table) write(c *nftables.Conn, w *model, due []string) error {
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

// writeSet writes the changes of a set, or all its elements if the kernel does not have it.
func (t *table) writeSet(c *nftables.Conn, s *set) error {
	if t.sets[s.name] == nil {
		if err := t.addSet(c, s); err != nil {
			return err
		}
	} else if !t.isNew(s) {
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

// isNew reports whether a set was added in this transaction and is still empty.
func (t *table) isNew(s *set) bool {
	return t.state != built && (s.name == "ingress" || s.name == "egress" || s.name == "itself")
}

func (t *table) changeSet(c *nftables.Conn, s *set) error {
	for _, f := range nft.Families() {
		var del, add []nftables.SetElement
		for e, old := range s.touched {
			now, exists := s.elements[e]
			if e.addr.Is6() != f.Is6() || old.exists == exists && old.value == now {
				continue
			}
			if old.exists {
				del = append(del, t.element(s, e, old.value))
			}
			if exists {
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

// maxComment bounds the comment of a set, which tools like nft show.
const maxComment = 100

// kernelSet returns the set of the kernel for a set of the plan and an address family.
func (t *table) kernelSet(s *set, f nft.Family) *nftables.Set {
	out := &nftables.Set{Table: t.handle, Name: s.name + "-" + f.Digit(), KeyType: f.AddrType,
		Comment: s.text[:min(len(s.text), maxComment)]}
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

// writeChain writes the rules of a chain. A chain that is not in use any more is emptied now and deleted later.
func (t *table) writeChain(c *nftables.Conn, w *model, name string) {
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

// rules returns the rules of a line: one for each address family if the line matches addresses.
func (t *table) rules(w *model, l line) (out [][]expr.Any) {
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
