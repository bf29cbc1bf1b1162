// Package service turns Services and their EndpointSlices into rules of the kernel: what reaches the address of a Service is
// sent on to one of its Pods.
//
// What shall be is decided Service by Service, by a pure function (decide.go). What is in the kernel is a table of maps
// (table.go): the address, protocol and port of a Service lead to a chain of its own, which picks a number at random, and a
// large map has for every number the address of a Pod. A change of one endpoint is therefore a change of one or two elements,
// however many Services there are. A change that comes alone is made at once, those of a rush in few transactions (pace.go).
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/network/nft"
)

// Config says for which node, and from what, the rules are made. NodeName and the views must be given.
type Config struct {
	NodeName string
	// Services, Slices and Nodes are what is read.
	Services, Slices, Nodes client.View
	// ClusterCIDRs are the networks of all Pods. What comes from elsewhere to the address of a Service gets the node's address,
	// so that the answer comes back the same way. If empty, nothing is known about who is inside.
	ClusterCIDRs []netip.Prefix
	// ServiceCIDRs are the networks of Services. What goes to an address in them that no Service has is dropped, so that it
	// does not leave the node. May be empty.
	ServiceCIDRs []netip.Prefix
	// Answers are cluster IPs that this node has itself, such as that of the cluster's DNS. There are no rules for them.
	Answers []netip.Addr
	// Table is the name of the table of rules, "proa-services" if empty.
	Table string
	// Mark is the bit of the packet mark that says that a packet gets the node's address, 0x4000 if 0.
	Mark uint32
	// ExternalIPs are the networks whose addresses are served when a Service has them as external IPs. Whoever may write Services
	// can catch any traffic with them, so none is unless asked for.
	ExternalIPs []netip.Prefix
	// Balancers are the networks that load balancers take addresses from. An address in the status of a Service is served if it is
	// in one of them, or if it is a node's and was given by the provider of such addresses. Others are not: whoever may write a
	// status could catch any traffic with them.
	Balancers []netip.Prefix
	// Kept are ports that no Service gets at the address of a node, whatever its status says: those of the system itself.
	Kept []uint16
	// Health is where it is told whether the rules are as they should be, as ADDR:PORT; empty for nowhere.
	Health string
	// Complain tells people that something is wrong with a Service, as an Event. May be nil.
	Complain func(about kind.Object, reason, message string)
	Log      *slog.Logger
}

// bySlice finds the EndpointSlices of a Service.
func byService() client.Index {
	return client.Index{Name: "service", Of: func(o kind.Object) []string {
		if name := o.GetLabels()[discoveryv1.LabelServiceName]; name != "" {
			return []string{o.GetNamespace() + "/" + name}
		}
		return nil
	}}
}

// key names a Service.
type key struct{ namespace, name string }

func (k key) String() string { return k.namespace + "/" + k.name }

// Proxy keeps the rules of this node.
type Proxy struct {
	Config
	table   *table
	health  *health
	metrics metrics
	nodes   *neighbours
	wake    chan struct{}
	start   time.Time

	mu      sync.Mutex // guards what follows
	dirty   map[key]bool
	all     bool        // every Service must be looked at
	causes  []time.Time // when that happened which made Services dirty
	waiting time.Time   // since when something waits to be written; zero if nothing does
	written time.Time   // when the rules were written last

	told map[key]string // belongs to Run: of which addresses of load balancers people were told that they are not served
}

// New makes a proxy; Run starts it.
func New(config Config) (*Proxy, error) {
	if config.NodeName == "" || config.Services == nil || config.Slices == nil || config.Nodes == nil {
		return nil, errors.New("service proxy: the name of the node and views of Services, EndpointSlices and Nodes must be given")
	}
	if config.Table == "" {
		config.Table = "proa-services"
	}
	if config.Mark == 0 {
		config.Mark = 0x4000
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	t, err := newTable(settings{config.Table, config.Mark, config.ClusterCIDRs, config.ServiceCIDRs}, config.Log)
	if err != nil {
		return nil, err
	}
	p := &Proxy{Config: config, table: t, metrics: newMetrics(), nodes: newNeighbours(slices.Concat(config.ClusterCIDRs, config.ServiceCIDRs)), dirty: map[key]bool{}, told: map[key]string{}, wake: make(chan struct{}, 1), start: time.Now()}
	p.health = newHealth(config.Log, func() bool { return p.state(time.Now()).Healthy })
	return p, nil
}

// The pauses after a transaction that failed.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 30 * time.Second
)

// lookAfter is how often it is made sure that nobody has removed the table.
const lookAfter = 30 * time.Second

// Run keeps the rules as Services and endpoints say, until ctx ends. The rules stay: connections go on while the agent is
// replaced.
func (p *Proxy) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer p.table.close()
	defer wg.Wait()
	defer p.health.close()
	for _, v := range []client.View{p.Services, p.Slices, p.Nodes} {
		if err := v.Reach(ctx, 0); err != nil {
			return fmt.Errorf("read Services, EndpointSlices and Nodes: %w", err)
		}
	}
	p.nodes.load(p.Nodes)
	p.ensureRoutes()
	p.touchAll()
	wg.Go(func() {
		p.follow(ctx, p.Services, func(o kind.Object) (key, bool) { return key{o.GetNamespace(), o.GetName()}, true })
	})
	wg.Go(func() { p.follow(ctx, p.Slices, ownerOf) })
	wg.Go(func() { p.followNodes(ctx) })
	wg.Go(func() { p.serveHealth(ctx) })
	wg.Go(func() { p.table.forget.run(ctx) })
	pause := firstPause
	var pace pace
	look := time.NewTicker(lookAfter)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-p.table.later():
		case <-look.C:
			p.table.check()
			p.ensureRoutes()
		}
		if !pace.wait(ctx) {
			return nil
		}
		if err := p.sync(); err != nil {
			p.Log.Error("the rules of Services could not be written; they will all be written again", "err", err, "in", pause)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(pause):
			}
			pause = min(2*pause, longestPause)
			p.touchAll()
			continue
		}
		pause = firstPause
	}
}

// ensureRoutes does what ensureRoutes says. The way out of the node may come and go.
func (p *Proxy) ensureRoutes() {
	if err := ensureRoutes(p.ServiceCIDRs); err != nil {
		p.Log.Warn("the node itself may not reach Services", "err", err)
	}
}

// apiServer is the Service of the API servers.
func apiServer() key { return key{"default", "kubernetes"} }

func ownerOf(o kind.Object) (key, bool) {
	name := o.GetLabels()[discoveryv1.LabelServiceName]
	return key{o.GetNamespace(), name}, name != ""
}

// follow marks the Services that changes are about.
func (p *Proxy) follow(ctx context.Context, v client.View, about func(kind.Object) (key, bool)) {
	for e := range v.Events(ctx) {
		if e.Gap {
			p.touchAll()
			continue
		}
		if k, ok := about(e.Object); ok {
			p.touch(k, e)
			if k == apiServer() {
				p.touchBalanced()
			}
		}
		if e.Old == nil {
			continue
		}
		// A slice may have been given to another Service.
		if k, ok := about(e.Old); ok {
			p.touch(k, client.Event{Object: e.Old, Old: e.Old})
		}
	}
}

// followNodes looks at every Service again when this node moves to another zone or changes its addresses, and at those with load
// balancers when any node changes its addresses.
func (p *Proxy) followNodes(ctx context.Context) {
	last := ""
	for e := range p.Nodes.Events(ctx) {
		changed := false
		switch {
		case e.Gap:
			changed = p.nodes.load(p.Nodes)
		case e.Deleted:
			changed = p.nodes.set(e.Object.GetName(), nil)
		default:
			changed = p.nodes.set(e.Object.GetName(), e.Object)
		}
		if e.Gap || e.Object.GetName() == p.NodeName {
			if now := p.here(); now != last {
				last = now
				p.touchAll()
			}
		}
		if changed {
			p.touchBalanced()
		}
	}
}

// here is what of this node matters, as a text.
func (p *Proxy) here() string {
	n := p.node()
	return fmt.Sprint(n.zone, n.addresses)
}

// touchBalanced marks the Services that have load balancers.
func (p *Proxy) touchBalanced() {
	for o := range p.Services.List("") {
		if svc, ok := o.(*corev1.Service); ok && len(svc.Status.LoadBalancer.Ingress) > 0 {
			p.touch(key{svc.Namespace, svc.Name}, client.Event{Object: svc, Old: svc})
		}
	}
}

func (p *Proxy) touch(k key, e client.Event) {
	p.mu.Lock()
	p.dirty[k] = true
	p.queued()
	// What happened before we were there is not ours.
	if t, ok := cause(e.Object, e.Old); ok && t.After(p.start) {
		p.causes = append(p.causes, t)
	}
	p.mu.Unlock()
	p.signal()
}

func (p *Proxy) touchAll() {
	p.mu.Lock()
	p.all = true
	p.queued()
	p.mu.Unlock()
	p.signal()
}

func (p *Proxy) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// work is what has changed, and since when it waits.
type work struct {
	dirty  map[key]bool
	all    bool
	causes []time.Time
	since  time.Time
}

// take returns what has changed since the last call.
func (p *Proxy) take() work {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := work{p.dirty, p.all, p.causes, p.waiting}
	p.dirty, p.all, p.causes, p.waiting = map[key]bool{}, false, nil, time.Time{}
	return out
}

// sync looks at the Services that have changed and makes one transaction of it.
func (p *Proxy) sync() error {
	start := time.Now()
	w := p.take()
	dirty := w.dirty
	if w.all {
		for o := range p.Services.List("") {
			dirty[key{o.GetNamespace(), o.GetName()}] = true
		}
		for k := range p.table.services {
			dirty[k] = true
		}
	}
	node := p.node()
	for k := range dirty {
		want := p.look(k, node)
		p.tellUnserved(k, want.unserved)
		p.table.set(k, want.ports)
		p.health.set(k, want.health)
	}
	err := p.table.commit()
	p.metrics.note(start, w.causes, err)
	p.settled(w.since, err)
	if err != nil {
		return err
	}
	for _, problem := range p.health.apply() {
		p.complain(problem)
	}
	return nil
}

// look decides one Service from the views.
func (p *Proxy) look(k key, node nodeFacts) wanted {
	o, ok := p.Services.Get(k.namespace, k.name)
	if !ok {
		return wanted{}
	}
	svc, ok := o.(*corev1.Service)
	if !ok {
		return wanted{}
	}
	var slices []*discoveryv1.EndpointSlice
	for o := range p.Slices.By(byService(), k.String()) {
		if s, ok := o.(*discoveryv1.EndpointSlice); ok {
			slices = append(slices, s)
		}
	}
	return decide(svc, slices, node)
}

// node is what is known of this node.
func (p *Proxy) node() nodeFacts {
	facts := nodeFacts{name: p.NodeName, answers: p.Answers, allowed: allowed{p.ExternalIPs, p.Balancers, p.nodes.has, p.kept()}}
	if o, _ := p.Nodes.Get("", p.NodeName); o != nil {
		facts.zone, facts.addresses = o.GetLabels()[corev1.LabelTopologyZone], p.nodes.addressesOf(o)
	}
	return facts
}

// kept are the ports that no Service gets at the address of a node: those of the settings, and those of the API servers.
func (p *Proxy) kept() []uint16 {
	out := slices.Clone(p.Kept)
	for o := range p.Slices.By(byService(), apiServer().String()) {
		if s, ok := o.(*discoveryv1.EndpointSlice); ok {
			for _, port := range s.Ports {
				if port.Port != nil {
					out = append(out, uint16(*port.Port))
				}
			}
		}
	}
	return out
}

func (p *Proxy) complain(problem healthProblem) {
	message := fmt.Sprintf("node %s failed to start healthcheck %q on port %d: %v", p.NodeName, problem.key, problem.port, problem.err)
	p.Log.Error("the endpoints of a Service cannot be asked for their health", "service", problem.key, "port", problem.port, "err", problem.err)
	if o, ok := p.Services.Get(problem.key.namespace, problem.key.name); ok && p.Complain != nil {
		p.Complain(o, "FailedToStartServiceHealthcheck", message)
	}
}

// Purge removes the rules, and routes to Services. An empty name stands for the usual one.
func Purge(tableName string) error {
	if tableName == "" {
		tableName = "proa-services"
	}
	kernel, err := nft.Open()
	if err != nil {
		return err
	}
	return errors.Join(kernel.Remove(tableName), kernel.Close(), removeRoutes())
}
