package service

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"proa.dev/network/nft"
)

// settings is what the rules depend on besides Services.
type settings struct {
	name               string
	mark               uint32
	clusters, services []netip.Prefix
}

// table is our table in the kernel. What is wanted is kept by Service; set changes it, commit makes it so. After a failure the
// whole table is written again.
type table struct {
	settings
	kernel   *nft.Kernel
	forget   *forgetter
	log      *slog.Logger
	services map[key][]port

	built  bool // the kernel has the table
	failed bool // the last transaction failed: no memory of clients is worth another failure
	saved  map[string][]nftables.SetElement
	dirty  map[key]bool

	// What follows mirrors the kernel, and is empty until the table is built.
	handle   *nftables.Table
	families []*family
	have     map[key]plan
	chains   map[string]*chain
	stale    map[string]time.Time // chains without rules, which shall be deleted
	streams  []stream
	openings openings
}

// family is the part of the table for IPv4 or IPv6.
type family struct {
	nft.Family
	vips, nodePorts, clusterIPs, hairpin *elements

	// direct has the endpoints of Services that need no chain of their own: the key is what the packet is sent to, and a number.
	// The chains in picks choose the number, one for each count of endpoints.
	direct endpointMap
	picks  map[int]bool
	owners map[string]key // whose endpoints an address leads to directly

	shards     []*shard
	shardCount int
}

func (f *family) maps() (out []*endpointMap) {
	out = append(out, &f.direct)
	for _, s := range f.shards {
		out = append(out, &s.endpointMap)
	}
	return out
}

func (f *family) elements() []*elements {
	return []*elements{f.vips, f.nodePorts, f.clusterIPs, f.hairpin}
}

// chain is one of a Service, with what its rules were made from.
type chain struct {
	text string // equal texts are equal rules
	space
	group *group
	// affinity remembers who was sent where; only for Services with affinity.
	affinity *clientMemory
}

// newTable opens the way to the kernel, in the network namespace that the thread is in.
func newTable(s settings, log *slog.Logger) (*table, error) {
	kernel, err := nft.Open()
	if err != nil {
		return nil, err
	}
	forget, err := newForgetter(log)
	if err != nil {
		return nil, errors.Join(err, kernel.Close())
	}
	return &table{settings: s, kernel: kernel, forget: forget, log: log, services: map[key][]port{}, dirty: map[key]bool{}, openings: openings{}}, nil
}

func (t *table) close() {
	_ = t.kernel.Close()
	_ = t.forget.connections.Close()
}

// set says what a Service needs from the next transaction on.
func (t *table) set(k key, ports []port) {
	if len(ports) == 0 {
		delete(t.services, k)
	} else {
		t.services[k] = ports
	}
	t.dirty[k] = true
}

// check notices that somebody has removed the table; it will be written again.
func (t *table) check() {
	if has, err := t.kernel.Has(t.name); t.built && (!has || err != nil) {
		t.log.Warn("somebody has removed the rules of Services; they are written again", "table", t.name, "err", err)
		t.built = false
	}
}

// rest is how long a chain without rules is kept. Older kernels count a chain as in use for a moment after the last element
// that leads to it is gone.
const rest = time.Second

// later is when chains are due to be deleted.
func (t *table) later() <-chan time.Time {
	if len(t.stale) == 0 {
		return nil
	}
	return time.After(rest)
}

// commit brings the kernel to what is wanted, in one transaction.
func (t *table) commit() error {
	due := t.due()
	if t.built && len(t.dirty) == 0 && len(due) == 0 {
		return nil
	}
	rebuild := !t.built
	if rebuild {
		due = nil // they go with the old table
	}
	if rebuild && !t.failed {
		t.saved = t.saveClients()
	}
	err := t.kernel.Do(func(c *nftables.Conn) error {
		if rebuild {
			if err := t.base(c); err != nil {
				return err
			}
		}
		return t.write(c, due)
	})
	t.saved, t.failed = nil, err != nil
	if err != nil {
		t.built = false
		return fmt.Errorf("write the rules of Services: %w", err)
	}
	t.built = true
	clear(t.dirty)
	for _, name := range due {
		delete(t.stale, name)
	}
	t.forget.note(t.streams, t.openings)
	t.streams, t.openings = nil, openings{}
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

// write adds the changes to a transaction: first what others need, then what leads to it, last what nobody needs any more.
func (t *table) write(c *nftables.Conn, due []string) error {
	tx := &transaction{table: t, conn: c}
	for _, k := range slices.SortedFunc(maps.Keys(t.dirty), compareKeys) {
		if err := tx.update(k); err != nil {
			return err
		}
	}
	for _, f := range t.families {
		for _, e := range f.elements() {
			del, add := e.changes()
			if err := errors.Join(inChunks(e.set, del, c.SetDeleteElements), inChunks(e.set, add, c.SetAddElements)); err != nil {
				return err
			}
		}
		for _, m := range f.maps() {
			if err := errors.Join(inChunks(m.set, m.del, c.SetDeleteElements), inChunks(m.set, m.add, c.SetAddElements)); err != nil {
				return err
			}
			m.del, m.add = nil, nil
		}
	}
	for _, do := range tx.rules {
		do()
	}
	for _, s := range tx.unused {
		c.DelSet(s)
	}
	for _, f := range t.families {
		f.prune(c.DelSet)
	}
	for _, name := range due {
		if t.chains[name] != nil {
			continue // it is needed again
		}
		c.DelChain(&nftables.Chain{Table: t.handle, Name: name})
	}
	return nil
}

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}

// transaction collects the changes of Services.
type transaction struct {
	*table
	conn   *nftables.Conn
	rules  []func()        // to be done when sets and elements are there
	unused []*nftables.Set // to be deleted when no rule uses them
}

// update brings one Service from what the kernel has to what is wanted.
func (tx *transaction) update(k key) error {
	before, after := tx.have[k], tx.plan(k, tx.services[k])
	tx.have[k] = after
	if len(after.claims) == 0 {
		delete(tx.have, k)
	}
	for _, name := range slices.Sorted(maps.Keys(after.chains)) {
		if err := tx.ensure(after.chains[name]); err != nil {
			return err
		}
	}
	for name, c := range before.chains {
		if _, stays := after.chains[name]; !stays {
			tx.retire(c)
		}
	}
	tx.updateDirect(k, before.direct, after.direct)
	for p, value := range after.claims {
		p.set.claim(after.owner, p.key, value)
	}
	for p := range before.claims {
		// A Service that was made anew under the same name is younger than it was.
		if _, stays := after.claims[p]; !stays || before.owner != after.owner {
			p.set.drop(before.owner, p.key)
		}
	}
	tx.markIdle(before.ports, after.ports)
	tx.noteStreams(before.ports, after.ports)
	tx.noteOpenings(before.ports, after.ports)
	return nil
}

// markIdle notes which endpoints nobody is led to. Of those that were there before the table was built nobody knows.
func (tx *transaction) markIdle(before, after []port) {
	for i := range after {
		after[i].idle = nil
		if tx.built {
			old, _ := find(before, after[i])
			after[i].idle = idle(old, after[i])
		}
	}
}

// updateDirect brings the endpoints of addresses that need no chain to what is wanted.
func (tx *transaction) updateDirect(k key, before, after map[directKey]*direct) {
	for id, d := range after {
		if old := before[id]; old != nil {
			d.group = old.group
		}
		moves := d.group.update(d.want)
		id.family.direct.apply(moves, id.element)
		id.family.owners[id.tuple] = k
	}
	for id, d := range before {
		if after[id] == nil {
			moves := d.group.update(nil)
			id.family.direct.apply(moves, id.element)
			delete(id.family.owners, id.tuple)
		}
	}
}

// ensure makes a chain as it is wanted.
func (tx *transaction) ensure(want wantedChain) error {
	have := tx.chains[want.name]
	if have == nil {
		have = &chain{}
		tx.chains[want.name] = have
		delete(tx.stale, want.name)
		tx.conn.AddChain(&nftables.Chain{Table: tx.handle, Name: want.name})
	}
	text := want.text
	if want.endpoints != nil {
		if err := errors.Join(tx.setAffinity(have, want), tx.regroup(have, want)); err != nil {
			return err
		}
		text = fmt.Sprint(want.text, " ", len(have.group.endpoints), " from ", have.first, " in ", have.set.Name)
	}
	if have.text == text {
		return nil
	}
	had := have.text != ""
	have.text = text
	tx.rules = append(tx.rules, func() {
		if had {
			tx.conn.FlushChain(&nftables.Chain{Table: tx.handle, Name: want.name})
		}
		for _, r := range want.rules(have) {
			tx.conn.AddRule(&nftables.Rule{Table: tx.handle, Chain: &nftables.Chain{Name: want.name}, Exprs: r})
		}
	})
	return nil
}

// retire takes the rules out of a chain that nothing leads to any more.
func (tx *transaction) retire(c wantedChain) {
	have := tx.chains[c.name]
	delete(tx.chains, c.name)
	tx.stale[c.name] = time.Now()
	tx.rules = append(tx.rules, func() { tx.conn.FlushChain(&nftables.Chain{Table: tx.handle, Name: c.name}) })
	tx.forgetClients(have)
	if have.group != nil {
		_ = tx.empty(have) // only the affinity of a chain can fail here, and it is forgotten
	}
}

// chainName is short, unique, and tells a person which Service it is of.
func chainName(p port, kind string) string {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, p.name, "/", p.protocol)
	readable := p.name
	if len(readable) > 60 {
		readable = readable[:60]
	}
	version := "4"
	if p.six {
		version = "6"
	}
	return kind + version + "-" + strconv.FormatUint(h.Sum64(), 36) + "-" + readable
}

// wantedChain is a chain that a Service needs.
type wantedChain struct {
	name   string
	family *family
	text   string
	// endpoints are what it chooses from; nil if it leads to other chains.
	endpoints []netip.AddrPort
	affinity  time.Duration
	rules     func(*chain) [][]expr.Any
}
