// Package networkpolicy enforces NetworkPolicies for the Pods of one node: which connections they may accept, and which they may make.
//
// A model of the cluster (model.go) keeps a plan of sets and chains (plan.go) up to date, change by change and
// independent of the kernel. The address of an isolated Pod leads to its isolation chain, which jumps to the chains of
// the policies that select the Pod. The chain of a policy has a line for each of its peers. Peers are sets of addresses
// that all policies with the same selector share, so one Pod more is one element more in the sets that it is a member
// of. The differences between the plan and the table in the kernel (table.go) are written in one transaction.
//
// The Pod network calls Attach before anything runs at an address, and the rules are in force when Attach returns.
package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/network/nft"
)

// Config configures a Guard. NodeName and Open are required.
type Config struct {
	NodeName string
	// Open opens the view of a resource: NetworkPolicies at once, Pods and Namespaces when there is a policy.
	Open func(ctx context.Context, on schema.GroupResource) (client.View, error)
	// DNSAddresses are the addresses of the DNS server of the node. Policies treat them like the DNS Pods of other clusters: as Pods of the
	// namespace kube-system with the label k8s-app=kube-dns.
	DNSAddresses []netip.Addr
	// Table is the name of the nftables table, "proa-policies" if empty.
	Table string
	// Report is called whenever the state changes: with the error why the policies are not in force, or with nil. May be nil.
	Report func(error)
	Log    *slog.Logger
}

// defaultTable is the name of the table if none is given.
const defaultTable = "proa-policies"

// Guard keeps the rules of this node. Pods can be attached before, between and after its runs.
type Guard struct {
	Config
	metrics metrics
	wake    wait.Signal

	dirtyMu sync.Mutex // guards dirty and all
	dirty   map[change]bool
	all     bool

	mu    sync.Mutex // guards what follows
	facts *resolver
	seen  map[key]string // the resource version of each policy in the plan
	run   *running       // nil between runs
	ready chan struct{}  // closed while the rules are in force
	// failure is the error of the last attempt to put the rules in force.
	failure error
}

// running is the state of a Guard while it runs.
type running struct {
	policies, pods, namespaces client.View   // pods and namespaces are nil until there is a policy
	opened                     chan struct{} // closed when all views are open
	table                      *table
	cleaner                    *addressCleaner
	begun                      bool // rules have been written
}

// change is an object that has changed.
type change struct {
	of schema.GroupResource
	key
}

// New returns a guard; Run starts it.
func New(config Config) (*Guard, error) {
	if config.NodeName == "" || config.Open == nil {
		return nil, errors.New("network policies: the name of the node and a way to open views must be given")
	}
	if config.Table == "" {
		config.Table = defaultTable
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	g := &Guard{
		Config: config, wake: wait.NewSignal(), dirty: map[change]bool{},
		facts: newResolver(config.NodeName), seen: map[key]string{}, ready: make(chan struct{}),
	}
	g.metrics = g.newMetrics()
	g.facts.model.setPod(podFacts{
		key: key{"kube-system", "names answered by nodes"}, known: true, labels: map[string]string{"k8s-app": "kube-dns"},
		addrs: config.DNSAddresses,
		ports: []namedPort{{"dns", udp, 53}, {"dns-tcp", tcp, 53}},
	}, len(config.DNSAddresses) > 0)
	return g, nil
}

// resyncPeriod is how often Run checks that no other program has removed the table.
const resyncPeriod = 30 * time.Second

// Run enforces the policies until ctx ends. The rules stay in the kernel, so that Pods are isolated while the agent restarts.
func (g *Guard) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := g.begin(ctx, &wg); err != nil {
		if ctx.Err() == nil {
			g.report(err)
		}
		return err
	}
	defer g.end()
	resync := time.NewTicker(resyncPeriod)
	defer resync.Stop()
	backoff := wait.Backoff{First: 100 * time.Millisecond, Max: 30 * time.Second}
	for {
		err := g.sync(ctx, &wg)
		if ctx.Err() == nil {
			g.report(err)
		}
		if err != nil {
			pause := backoff.Next()
			g.Log.Error("network policies could not be put in force; all of them will be written again", "err", err, "in", pause)
			if wait.Sleep(ctx, pause) != nil {
				return nil
			}
			continue
		}
		backoff.Reset()
		select {
		case <-ctx.Done():
			return nil
		case <-g.wake:
		case <-g.deletionDue():
		case <-resync.C:
			g.checkPresent()
		}
	}
}

// report records whether the rules are in force, for Pods that wait for them and for Report.
func (g *Guard) report(err error) {
	g.mu.Lock()
	before := g.failure
	g.failure = err
	g.mu.Unlock()
	if g.Report != nil && fmt.Sprint(before) != fmt.Sprint(err) {
		g.Report(err)
	}
}

// reason returns why the rules of a Pod are not known.
func (g *Guard) reason() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failure != nil {
		return g.failure
	}
	return errors.New("no answer from the API")
}

// begin opens nftables, the connection table and the view of policies.
func (g *Guard) begin(ctx context.Context, wg *sync.WaitGroup) error {
	policies, err := g.Open(ctx, gr.NetworkPolicies)
	if err != nil {
		return fmt.Errorf("read NetworkPolicies: %w", err)
	}
	if err := policies.Reach(ctx, 0); err != nil {
		return fmt.Errorf("read NetworkPolicies: %w", err)
	}
	kernel, err := nft.Open()
	if err != nil {
		return err
	}
	cleaner, err := openAddressCleaner(g.Log)
	if err != nil {
		return errors.Join(err, kernel.Close())
	}
	g.mu.Lock()
	g.run = &running{policies: policies, opened: make(chan struct{}),
		table: &table{name: g.Table, answers: g.DNSAddresses, kernel: kernel, log: g.Log}, cleaner: cleaner}
	g.mu.Unlock()
	g.markAllDirty()
	wg.Go(func() { cleaner.Run(ctx) })
	wg.Go(func() { g.follow(ctx, gr.NetworkPolicies, policies) })
	return nil
}

func (g *Guard) end() {
	g.mu.Lock()
	cleaner := g.run.cleaner
	_ = g.run.table.kernel.Close()
	g.run = nil
	select {
	case <-g.ready:
		g.ready = make(chan struct{})
	default:
	}
	g.mu.Unlock()
	cleaner.close()
}

// deletionDue receives a value when the table has chains to delete.
func (g *Guard) deletionDue() <-chan time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.run.table.deletionDue()
}

func (g *Guard) checkPresent() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.run.table.checkPresent()
}

// follow marks the objects dirty that change.
func (g *Guard) follow(ctx context.Context, of schema.GroupResource, v client.View) {
	for e := range v.Events(ctx) {
		if e.Gap {
			g.markAllDirty()
			continue
		}
		if !mayChangePlan(e) {
			continue
		}
		g.dirtyMu.Lock()
		g.dirty[change{of, key{e.Object.GetNamespace(), e.Object.GetName()}}] = true
		g.dirtyMu.Unlock()
		g.wake.Send()
	}
}

// mayChangePlan reports whether an event may change the plan. Most events of Pods do not: containers become ready, restart, terminate.
func mayChangePlan(e client.Event) bool {
	now, ok := e.Object.(*corev1.Pod)
	old, ok2 := e.Old.(*corev1.Pod)
	return !ok || !ok2 || e.Deleted || !isUnchanged(old, now)
}

func (g *Guard) markAllDirty() {
	g.dirtyMu.Lock()
	g.all = true
	g.dirtyMu.Unlock()
	g.wake.Send()
}

// take returns the changes since the last call.
func (g *Guard) take() (dirty map[change]bool, all bool) {
	g.dirtyMu.Lock()
	defer g.dirtyMu.Unlock()
	dirty, all = g.dirty, g.all
	g.dirty, g.all = map[change]bool{}, false
	return dirty, all
}

// sync writes all changes in one transaction. With the first policy it opens the views of Pods and Namespaces: a
// cluster without policies does not pay for them.
func (g *Guard) sync(ctx context.Context, wg *sync.WaitGroup) error {
	if err := g.openViews(ctx, wg); err != nil {
		g.markAllDirty()
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	dirty, all := g.take()
	if all {
		g.addAll(dirty)
	}
	for c := range dirty {
		g.update(c)
	}
	if err := g.commit(); err != nil {
		return err
	}
	select {
	case <-g.ready:
	default:
		close(g.ready)
	}
	return nil
}

// openViews opens the views of Pods and Namespaces if there are policies.
func (g *Guard) openViews(ctx context.Context, wg *sync.WaitGroup) error {
	g.mu.Lock()
	open, policies := g.run.pods != nil, g.run.policies
	g.mu.Unlock()
	if open || !hasObjects(policies) {
		return nil
	}
	views := map[schema.GroupResource]client.View{gr.Namespaces: nil, gr.Pods: nil}
	for on := range views {
		v, err := g.Open(ctx, on)
		if err == nil {
			err = v.Reach(ctx, 0)
		}
		if err != nil {
			return fmt.Errorf("read the Pods and Namespaces of NetworkPolicies: %w", err)
		}
		views[on] = v
	}
	g.mu.Lock()
	g.run.pods, g.run.namespaces = views[gr.Pods], views[gr.Namespaces]
	close(g.run.opened)
	g.mu.Unlock()
	g.markAllDirty()
	for on, v := range views {
		wg.Go(func() { g.follow(ctx, on, v) })
	}
	return nil
}

// hasObjects reports whether a view has any objects.
func hasObjects(v client.View) bool {
	for range v.List("") {
		return true
	}
	return false
}

// addAll adds all objects of the views and all that the plan knows.
func (g *Guard) addAll(dirty map[change]bool) {
	mark := func(of schema.GroupResource, v client.View) {
		if v != nil {
			for o := range v.List("") {
				dirty[change{of, key{o.GetNamespace(), o.GetName()}}] = true
			}
		}
	}
	mark(gr.NetworkPolicies, g.run.policies)
	mark(gr.Pods, g.run.pods)
	mark(gr.Namespaces, g.run.namespaces)
	for k := range g.seen {
		dirty[change{gr.NetworkPolicies, k}] = true
	}
	for k := range g.facts.api {
		dirty[change{gr.Pods, k}] = true
	}
	for name := range g.facts.namespaces {
		dirty[change{gr.Namespaces, key{"", name}}] = true
	}
}

// update updates the plan with the current state of one object.
func (g *Guard) update(c change) {
	get := func(v client.View) (kind.Object, bool) {
		if v == nil {
			return nil, false
		}
		return v.Get(c.namespace, c.name)
	}
	switch c.of {
	case gr.NetworkPolicies:
		o, ok := get(g.run.policies)
		g.setPolicy(c.key, o, ok)
	case gr.Namespaces:
		if o, ok := get(g.run.namespaces); ok {
			set := o.GetLabels()
			if set == nil {
				set = map[string]string{}
			}
			g.facts.setNamespace(c.name, set)
		} else {
			g.facts.setNamespace(c.name, nil)
		}
	case gr.Pods:
		o, _ := get(g.run.pods)
		p, _ := o.(*corev1.Pod)
		g.facts.setPod(c.key, p)
	}
}

func (g *Guard) setPolicy(k key, o kind.Object, exists bool) {
	n, ok := o.(*networkingv1.NetworkPolicy)
	if !exists || !ok {
		delete(g.seen, k)
		g.facts.setPolicy(k, nil)
		return
	}
	// In tests resource versions may be empty.
	if seen, known := g.seen[k]; known && seen == n.ResourceVersion && seen != "" {
		return
	}
	g.seen[k] = n.ResourceVersion
	g.facts.setPolicy(k, readPolicy(n))
}

// commit writes the changes, and requests the deletion of the conntrack entries of addresses with a new owner.
func (g *Guard) commit() error {
	start := time.Now()
	err := g.run.table.commit(g.facts.model)
	g.metrics.observe(start, err)
	if err != nil {
		g.wake.Send()
		return err
	}
	reassigned, first := g.facts.takeReassigned(), !g.run.begun
	g.run.begun = true
	if !first && g.facts.isolated() {
		g.run.cleaner.add(reassigned)
	}
	return nil
}

// How long Attach waits. If the API server does not answer, Pods must still be able to restart.
const (
	attachTimeout = 30 * time.Second // for the rules to be in force at all
	reachTimeout  = time.Second      // for the view to show policies that were created a moment ago
)

// Attach records that a Pod (namespace/name) of this node has addresses. When it returns, every policy that was stored
// before is in force for them, and the conntrack entries of their former owner are deleted. A Pod that the view does
// not show yet is isolated completely if there are policies in its namespace.
func (g *Guard) Attach(ctx context.Context, pod, uid string, addrs []netip.Addr) error {
	ctx, stop := context.WithTimeout(ctx, attachTimeout)
	defer stop()
	k := parseKey(pod)
	if err := g.awaitRules(ctx, k); err != nil {
		return err
	}
	cleaner, err := g.applyRules(k, uid, addrs)
	if err != nil {
		return err
	}
	cleaner.waitFor(addrs)
	return nil
}

// applyRules puts the rules of a Pod in force. It returns the cleaner that the Pod has to wait for.
func (g *Guard) applyRules(k key, uid string, addrs []netip.Addr) (*addressCleaner, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.facts.attach(k, uid, addrs)
	if g.run == nil {
		return nil, errors.New("network policies are not enforced: the agent is ending")
	}
	g.update(change{gr.Pods, k})
	for o := range g.run.policies.List(k.namespace) {
		g.update(change{gr.NetworkPolicies, key{o.GetNamespace(), o.GetName()}})
	}
	return g.run.cleaner, g.commit()
}

// awaitRules waits until the rules are in force, and at most for reachTimeout until they are up to date.
func (g *Guard) awaitRules(ctx context.Context, k key) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g.mu.Lock()
	ready := g.ready
	if apierrors.IsForbidden(g.failure) { // an administrator has to act: fail at once, so that the Pod reports it
		stop()
	}
	g.mu.Unlock()
	select {
	case <-ready:
	case <-ctx.Done():
		return fmt.Errorf("the network policies for Pod %s are not known yet, and it may not start before: %w", k, g.reason())
	}
	g.mu.Lock()
	run := g.run
	g.mu.Unlock()
	if run == nil {
		return nil
	}
	soon, stop := context.WithTimeout(ctx, reachTimeout)
	defer stop()
	if err := run.policies.Reach(soon, 0); err != nil {
		g.Log.Warn("a Pod starts with the network policies that are known; there may be newer ones", "pod", k.String(), "err", err)
	}
	if !hasObjects(run.policies) {
		return nil
	}
	g.wake.Send()
	select {
	case <-run.opened:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the Pods that network policies are about are not known yet, and Pod %s may not start before: %w", k, g.reason())
	}
}

// Adopt records that a Pod of this node has had addresses since before the agent started. Its rules are written with those of all others.
func (g *Guard) Adopt(pod, uid string, addrs []netip.Addr) {
	g.mu.Lock()
	g.facts.attach(parseKey(pod), uid, addrs)
	g.mu.Unlock()
	g.wake.Send()
}

// Detach records that addresses of this node are free.
func (g *Guard) Detach(addrs []netip.Addr) {
	g.mu.Lock()
	g.facts.detach(addrs)
	g.mu.Unlock()
	g.wake.Send()
}

// Taken reports whether a running Pod of the API has an address. Another Pod that got it meanwhile would get the rights
// of that Pod on other nodes.
func (g *Guard) Taken(a netip.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.facts.claims[a] {
		if api := g.facts.api[p.key]; api != nil {
			for _, ip := range addresses(&api.Status) {
				if ip == a {
					return true
				}
			}
		}
	}
	return false
}

func parseKey(pod string) key {
	namespace, name, _ := strings.Cut(pod, "/")
	return key{namespace, name}
}

// Purge removes the rules. An empty name stands for the default table.
func Purge(tableName string) error {
	if tableName == "" {
		tableName = defaultTable
	}
	kernel, err := nft.Open()
	if err != nil {
		return err
	}
	return errors.Join(kernel.Remove(tableName), kernel.Close())
}
