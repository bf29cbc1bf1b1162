// Package policy enforces NetworkPolicies for the Pods of one node: which connections they may accept, and which they may make.
//
// What shall be is a plan of sets and chains (plan.go), which a model of the cluster keeps up to date change by change
// (world.go) and which knows no kernel. The address of an isolated Pod leads to its wall, a chain that asks the policies that
// select the Pod; a policy has a line for each of its peers; peers are sets of addresses that all policies with the same
// selector share. One Pod more is therefore an element more in the sets that it belongs to. What the kernel has is a table
// (table.go), to which differences are written in one transaction.
//
// The network of the node says whose an address is before anything runs there (Attach), and its rules are in force when that
// returns.
package policy

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
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/network/nft"
)

// Config says for which node policies are enforced, and from what. NodeName and Open must be given.
type Config struct {
	NodeName string
	// Open opens the view of a resource: NetworkPolicies at once, Pods and Namespaces when there is a policy.
	Open func(ctx context.Context, on schema.GroupResource) (client.View, error)
	// Answers are the addresses at which the node itself answers names. Policies see them as the Pods that do so elsewhere:
	// those of the namespace kube-system with the label k8s-app=kube-dns.
	Answers []netip.Addr
	// Table is the name of the table of rules, "proa-policies" if empty.
	Table string
	// Report is told why the policies are not in force, and nil when they are, each time that changes; nil for nobody.
	Report func(error)
	Log    *slog.Logger
}

// usualTable is the name of the table where none is given.
const usualTable = "proa-policies"

// Guard keeps the rules of this node. It can be told about Pods before, between and after its runs.
type Guard struct {
	Config
	metrics metrics
	wake    chan struct{}

	dirtyMu sync.Mutex // guards dirty and all
	dirty   map[change]bool
	all     bool

	mu    sync.Mutex // guards what follows
	facts *resolver
	seen  map[key]string // the version of each policy that is in the plan
	run   *running       // nil between runs
	ready chan struct{}  // closed while the rules are in force
	// failure is why the last attempt to put the rules in force has failed, nil if it has not.
	failure error
}

// running is what a Guard has while it runs.
type running struct {
	policies, pods, namespaces client.View   // the last two are nil until there is a policy
	opened                     chan struct{} // closed when they are not
	table                      *table
	forget                     *forgetter
	begun                      bool // rules were written
}

// change is an object that must be looked at again.
type change struct {
	of schema.GroupResource
	key
}

// New makes a guard; Run starts it.
func New(config Config) (*Guard, error) {
	if config.NodeName == "" || config.Open == nil {
		return nil, errors.New("network policies: the name of the node and a way to open views must be given")
	}
	if config.Table == "" {
		config.Table = usualTable
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	g := &Guard{
		Config: config, wake: make(chan struct{}, 1), dirty: map[change]bool{},
		facts: newResolver(config.NodeName), seen: map[key]string{}, ready: make(chan struct{}),
	}
	g.metrics = g.newMetrics()
	g.facts.world.setPod(podFacts{
		key: key{"kube-system", "names answered by nodes"}, known: true, labels: map[string]string{"k8s-app": "kube-dns"}, addrs: config.Answers,
		ports: []namedPort{{"dns", udp, 53}, {"dns-tcp", tcp, 53}},
	}, len(config.Answers) > 0)
	return g, nil
}

// The pauses after a transaction that failed.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
)

// lookAfter is how often it is made sure that nobody has removed the table.
const lookAfter = 30 * time.Second

// Run keeps the rules as policies say, until ctx ends. The rules stay: a Pod is no less isolated while the agent is replaced.
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
	look := time.NewTicker(lookAfter)
	defer look.Stop()
	pause := firstPause
	for {
		err := g.sync(ctx, &wg)
		if ctx.Err() == nil {
			g.report(err)
		}
		if err != nil {
			g.Log.Error("network policies could not be put in force; all of them will be written again", "err", err, "in", pause)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(pause):
			}
			pause = min(2*pause, longestPause)
			continue
		}
		pause = firstPause
		select {
		case <-ctx.Done():
			return nil
		case <-g.wake:
		case <-g.later():
		case <-look.C:
			g.check()
		}
	}
}

// report notes whether the rules are in force, for Pods that wait for that and for the node.
func (g *Guard) report(err error) {
	g.mu.Lock()
	before := g.failure
	g.failure = err
	g.mu.Unlock()
	if g.Report != nil && fmt.Sprint(before) != fmt.Sprint(err) {
		g.Report(err)
	}
}

// reason is why a Pod cannot be told its rules.
func (g *Guard) reason() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failure != nil {
		return g.failure
	}
	return errors.New("no answer from the API")
}

// begin opens the way to the kernel and the view of policies.
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
	forget, err := newForgetter(g.Log)
	if err != nil {
		return errors.Join(err, kernel.Close())
	}
	g.mu.Lock()
	g.run = &running{policies: policies, opened: make(chan struct{}), table: &table{name: g.Table, answers: g.Answers, kernel: kernel, log: g.Log}, forget: forget}
	g.mu.Unlock()
	g.touchAll()
	wg.Go(func() { forget.run(ctx) })
	wg.Go(func() { g.follow(ctx, gr.NetworkPolicies, policies) })
	return nil
}

func (g *Guard) end() {
	g.mu.Lock()
	forget := g.run.forget
	_ = g.run.table.kernel.Close()
	g.run = nil
	select {
	case <-g.ready:
		g.ready = make(chan struct{})
	default:
	}
	g.mu.Unlock()
	forget.close()
}

func (g *Guard) later() <-chan time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.run.table.later()
}

func (g *Guard) check() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.run.table.check()
}

// follow marks the objects that change.
func (g *Guard) follow(ctx context.Context, of schema.GroupResource, v client.View) {
	for e := range v.Events(ctx) {
		if e.Gap {
			g.touchAll()
			continue
		}
		if !matters(e) {
			continue
		}
		g.dirtyMu.Lock()
		g.dirty[change{of, key{e.Object.GetNamespace(), e.Object.GetName()}}] = true
		g.dirtyMu.Unlock()
		g.signal()
	}
}

// matters tells whether an event may change the plan. Most of those of Pods do not: containers become ready, restart, end.
func matters(e client.Event) bool {
	now, ok := e.Object.(*corev1.Pod)
	old, ok2 := e.Old.(*corev1.Pod)
	return !ok || !ok2 || e.Deleted || !same(old, now)
}

func (g *Guard) touchAll() {
	g.dirtyMu.Lock()
	g.all = true
	g.dirtyMu.Unlock()
	g.signal()
}

func (g *Guard) signal() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// take returns what has changed since the last call.
func (g *Guard) take() (dirty map[change]bool, all bool) {
	g.dirtyMu.Lock()
	defer g.dirtyMu.Unlock()
	dirty, all = g.dirty, g.all
	g.dirty, g.all = map[change]bool{}, false
	return dirty, all
}

// sync looks at what has changed and makes one transaction of it. With the first policy the views of Pods and Namespaces are
// opened: a cluster without policies does not pay for them.
func (g *Guard) sync(ctx context.Context, wg *sync.WaitGroup) error {
	if err := g.openRest(ctx, wg); err != nil {
		g.touchAll()
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	dirty, all := g.take()
	if all {
		g.everything(dirty)
	}
	for c := range dirty {
		g.look(c)
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

// openRest opens what is needed only when there are policies.
func (g *Guard) openRest(ctx context.Context, wg *sync.WaitGroup) error {
	g.mu.Lock()
	open, policies := g.run.pods != nil, g.run.policies
	g.mu.Unlock()
	if open || !some(policies) {
		return nil
	}
	views := map[schema.GroupResource]client.View{gr.Namespaces: nil, gr.Pods: nil}
	for on := range views {
		v, err := g.Open(ctx, on)
		if err == nil {
			err = v.Reach(ctx, 0)
		}
		if err != nil {
			return fmt.Errorf("read what NetworkPolicies are about: %w", err)
		}
		views[on] = v
	}
	g.mu.Lock()
	g.run.pods, g.run.namespaces = views[gr.Pods], views[gr.Namespaces]
	close(g.run.opened)
	g.mu.Unlock()
	g.touchAll()
	for on, v := range views {
		wg.Go(func() { g.follow(ctx, on, v) })
	}
	return nil
}

// some tells whether a view has any objects.
func some(v client.View) bool {
	for range v.List("") {
		return true
	}
	return false
}

// everything marks all objects that there are, and all that the plan knows.
func (g *Guard) everything(dirty map[change]bool) {
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

// look brings one object from its view into the plan.
func (g *Guard) look(c change) {
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

func (g *Guard) setPolicy(k key, o kind.Object, there bool) {
	n, ok := o.(*networkingv1.NetworkPolicy)
	if !there || !ok {
		delete(g.seen, k)
		g.facts.setPolicy(k, nil)
		return
	}
	// Versions of an object are never empty; those of tests may be.
	if was, known := g.seen[k]; known && was == n.ResourceVersion && was != "" {
		return
	}
	g.seen[k] = n.ResourceVersion
	g.facts.setPolicy(k, readPolicy(n))
}

// commit writes what has changed, and notes the addresses that are others' now, whose connections shall end.
func (g *Guard) commit() error {
	start := time.Now()
	err := g.run.table.commit(g.facts.world)
	g.metrics.note(start, err)
	if err != nil {
		g.signal()
		return err
	}
	lost, first := g.facts.takeLost(), !g.run.begun
	g.run.begun = true
	if !first && g.facts.isolated() {
		g.run.forget.note(lost)
	}
	return nil
}

// patience is how long Attach waits: for the rules to be in force at all, and for the view to show policies that were made a
// moment ago. A cluster whose API does not answer must not keep Pods from being restarted.
const (
	patience  = 30 * time.Second
	freshness = time.Second
)

// Attach says that a Pod (namespace/name) of this node has addresses. When it returns, every policy that was acknowledged
// before is in force for them, and the kernel has forgotten the connections of who had them before; a Pod that the API has not
// told us about may talk to nobody if there are policies where it lives.
func (g *Guard) Attach(ctx context.Context, pod, uid string, addrs []netip.Addr) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	k := parseKey(pod)
	if err := g.await(ctx, k); err != nil {
		return err
	}
	forget, err := g.admit(k, uid, addrs)
	if err != nil {
		return err
	}
	forget.settle(addrs)
	return nil
}

// admit puts the rules of a Pod in force, and returns who knows what is to be forgotten before it runs.
func (g *Guard) admit(k key, uid string, addrs []netip.Addr) (*forgetter, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.facts.attach(k, uid, addrs)
	if g.run == nil {
		return nil, errors.New("network policies are not enforced: the agent is ending")
	}
	g.look(change{gr.Pods, k})
	for o := range g.run.policies.List(k.namespace) {
		g.look(change{gr.NetworkPolicies, key{o.GetNamespace(), o.GetName()}})
	}
	return g.run.forget, g.commit()
}

// await waits until rules are in force, and as fresh as can be had in a moment.
func (g *Guard) await(ctx context.Context, k key) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g.mu.Lock()
	ready := g.ready
	if apierrors.IsForbidden(g.failure) { // people must act: the Pod says so at once, and tries again
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
	soon, stop := context.WithTimeout(ctx, freshness)
	defer stop()
	if err := run.policies.Reach(soon, 0); err != nil {
		g.Log.Warn("a Pod starts with the network policies that are known; there may be newer ones", "pod", k.String(), "err", err)
	}
	if !some(run.policies) {
		return nil
	}
	g.signal()
	select {
	case <-run.opened:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the Pods that network policies are about are not known yet, and Pod %s may not start before: %w", k, g.reason())
	}
}

// Adopt says that a Pod of this node has had addresses since before. Its rules come with those of all others.
func (g *Guard) Adopt(pod, uid string, addrs []netip.Addr) {
	g.mu.Lock()
	g.facts.attach(parseKey(pod), uid, addrs)
	g.mu.Unlock()
	g.signal()
}

// Detach says that addresses of this node are nobody's any more.
func (g *Guard) Detach(addrs []netip.Addr) {
	g.mu.Lock()
	g.facts.detach(addrs)
	g.mu.Unlock()
	g.signal()
}

// Taken tells whether the API says that a living Pod has an address. Who gets it while others believe that would get the
// rights of that Pod.
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

// Purge removes the rules. An empty name stands for the usual one.
func Purge(tableName string) error {
	if tableName == "" {
		tableName = usualTable
	}
	kernel, err := nft.Open()
	if err != nil {
		return err
	}
	return errors.Join(kernel.Remove(tableName), kernel.Close())
}
