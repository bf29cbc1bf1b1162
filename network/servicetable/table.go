// Package servicetable keeps the nftables table that sends the packets for Services to their endpoints.
//
// The table consists of maps: the address, protocol and port of a Service lead to a chain, which picks a number at
// random, and a large map has the endpoint of every number. A change of one endpoint is therefore a change of one or
// two elements, however many Services there are. After a change the conntrack entries of removed endpoints are deleted
// in the background.
package servicetable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/network/nft"
)

// key is the namespace and name of a Service.
type key = types.NamespacedName

// Settings is what the rules depend on besides Services.
type Settings struct {
	Name string // of the table
	Mark uint32 // the bit of the packet mark for packets to masquerade
	// ClusterCIDRs are the networks of Pods, ServiceCIDRs those of Services.
	ClusterCIDRs, ServiceCIDRs []netip.Prefix
}

// Table is the table in the kernel. Set changes the ports of a Service, Commit writes all changes in one transaction. After a failure the
// next Commit writes the whole table again.
type Table struct {
	Settings
	kernel   *nft.Kernel
	cleaner  *cleaner
	log      *slog.Logger
	services map[key][]Port

	built  bool // the kernel has the table
	failed bool // the last transaction failed; the next one does not restore clients, so as not to fail for that
	saved  map[string][]nftables.SetElement
	dirty  map[key]bool

	// What follows mirrors the kernel. It is empty until the table is built.
	handle     *nftables.Table
	families   []*family
	have       map[key]plan
	chains     map[string]*chain
	stale      map[string]time.Time // chains without rules, which are to be deleted, and since when
	udpTargets []udpTarget
	removedTCP removedTCP
}

// family is the part of the table for IPv4 or IPv6.
type family struct {
	nft.Family
	vips, nodePorts, clusterIPs, hairpin *elements

	// direct has the endpoints of Services that need no chain: its keys are the destination of a packet and a number. The chains in picks
	// choose the number, one chain for each count of endpoints.
	direct endpointMap
	picks  map[int]bool
	owners map[string]key // the Service of each address in direct

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

// chain is a chain of a Service as it is in the kernel.
type chain struct {
	text string // describes the rules: equal texts mean equal rules
	space
	group *group
	// affinity holds the clients; nil without session affinity.
	affinity *clientSets
}

// Open returns a table of the network namespace that the thread is in. Nothing is written before the first Commit.
func Open(s Settings, log *slog.Logger) (*Table, error) {
	kernel, err := nft.Open()
	if err != nil {
		return nil, err
	}
	cleaner, err := newCleaner(log)
	if err != nil {
		return nil, errors.Join(err, kernel.Close())
	}
	return &Table{Settings: s, kernel: kernel, cleaner: cleaner, log: log, services: map[key][]Port{}, dirty: map[key]bool{},
		removedTCP: removedTCP{}}, nil
}

// Close closes the connections to the kernel. The table stays.
func (t *Table) Close() {
	_ = t.kernel.Close()
	_ = t.cleaner.connections.Close()
}

// Services returns the names of all Services in the table.
func (t *Table) Services() iter.Seq[types.NamespacedName] { return maps.Keys(t.services) }

// RunCleanup deletes conntrack entries of removed endpoints until ctx ends.
func (t *Table) RunCleanup(ctx context.Context) { t.cleaner.Run(ctx) }

// Remove removes the table with a name from the kernel.
func Remove(name string) error {
	kernel, err := nft.Open()
	if err != nil {
		return err
	}
	return errors.Join(kernel.Remove(name), kernel.Close())
}

// Set sets the ports of a Service. Without ports it removes the Service.
func (t *Table) Set(k key, ports []Port) {
	if len(ports) == 0 {
		delete(t.services, k)
	} else {
		t.services[k] = ports
	}
	t.dirty[k] = true
}

// CheckPresent makes the next Commit write the whole table if another program has removed it.
func (t *Table) CheckPresent() {
	if has, err := t.kernel.Has(t.Name); t.built && (!has || err != nil) {
		t.log.Warn("the rules of Services were removed by another program; they are written again", "table", t.Name, "err", err)
		t.built = false
	}
}

// retireDelay is how long a chain without rules is kept. Older kernels count a chain as in use for a moment after the
// last element that leads to it is deleted.
const retireDelay = time.Second

// DeletionDue receives a value when Commit is to be called to delete chains without rules.
func (t *Table) DeletionDue() <-chan time.Time {
	if len(t.stale) == 0 {
		return nil
	}
	return time.After(retireDelay)
}

// Commit writes all changes in one transaction.
func (t *Table) Commit() error {
	due := t.due()
	if t.built && len(t.dirty) == 0 && len(due) == 0 {
		return nil
	}
	rebuild := !t.built
	if rebuild {
		due = nil // they are removed with the old table
	}
	if rebuild && !t.failed {
		t.saved = t.saveClients()
	}
	err := t.kernel.Do(func(c *nftables.Conn) error {
		if rebuild {
			if err := t.create(c); err != nil {
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
	t.cleaner.add(t.udpTargets, t.removedTCP)
	t.udpTargets, t.removedTCP = nil, removedTCP{}
	return nil
}

func (t *Table) due() (out []string) {
	for name, since := range t.stale {
		if time.Since(since) >= retireDelay {
			out = append(out, name)
		}
	}
	return out
}

// write adds the changes to a transaction: first sets and elements, then the rules that use them, last the deletions.
func (t *Table) write(c *nftables.Conn, due []string) error {
	tx := &transaction{Table: t, conn: c}
	for _, k := range slices.SortedFunc(maps.Keys(t.dirty), compareKeys) {
		if err := tx.update(k); err != nil {
			return err
		}
	}
	for _, f := range t.families {
		for _, e := range f.elements() {
			del, add := e.changes()
			if err := errors.Join(nft.InChunks(e.set, del, c.SetDeleteElements), nft.InChunks(e.set, add, c.SetAddElements)); err != nil {
				return err
			}
		}
		for _, m := range f.maps() {
			if err := errors.Join(nft.InChunks(m.set, m.del, c.SetDeleteElements),
				nft.InChunks(m.set, m.add, c.SetAddElements)); err != nil {
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
			continue // it is in use again
		}
		c.DelChain(&nftables.Chain{Table: t.handle, Name: name})
	}
	return nil
}

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// transaction collects the changes of Services.
type transaction struct {
	*Table
	conn   *nftables.Conn
	rules  []func()        // run after sets and elements were added
	unused []*nftables.Set // deleted after the rules that use them
}

// update adds the changes of one Service.
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
		// The owner name changes when a Service is created again under the same name.
		if _, stays := after.claims[p]; !stays || before.owner != after.owner {
			p.set.drop(before.owner, p.key)
		}
	}
	tx.markUnused(before.ports, after.ports)
	tx.collectUDPTargets(before.ports, after.ports)
	tx.collectRemovedTCP(before.ports, after.ports)
	return nil
}

// markUnused sets the unused endpoints of ports. When the table is rebuilt, all endpoints count as used, because an
// earlier process may have used them.
func (tx *transaction) markUnused(before, after []Port) {
	for i := range after {
		after[i].unused = nil
		if tx.built {
			old, _ := find(before, after[i])
			after[i].unused = unusedEndpoints(old, after[i])
		}
	}
}

// updateDirect updates the endpoints of addresses that need no chain.
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

// ensure creates or updates a chain.
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

// retire removes the rules of a chain that nothing leads to any more. Commit deletes the chain later.
func (tx *transaction) retire(c wantedChain) {
	have := tx.chains[c.name]
	delete(tx.chains, c.name)
	tx.stale[c.name] = time.Now()
	tx.rules = append(tx.rules, func() { tx.conn.FlushChain(&nftables.Chain{Table: tx.handle, Name: c.name}) })
	tx.forgetClients(have)
	if have.group != nil {
		_ = tx.empty(have) // only affinity can fail here, and it is removed
	}
}

// chainName returns a short and unique name that shows which Service the chain belongs to.
func chainName(p Port, kind string) string {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, p.Name, "/", p.Protocol)
	readable := p.Name
	if len(readable) > 60 {
		readable = readable[:60]
	}
	version := "4"
	if p.IPv6 {
		version = "6"
	}
	return kind + version + "-" + strconv.FormatUint(h.Sum64(), 36) + "-" + readable
}

// wantedChain is a chain as it is to be.
type wantedChain struct {
	name   string
	family *family
	text   string
	// endpoints are the endpoints that the chain chooses from; nil if it leads to other chains.
	endpoints []netip.AddrPort
	affinity  time.Duration
	rules     func(*chain) [][]expr.Any
}
