// Package service is the service proxy of a node: it turns Services and their EndpointSlices into nftables rules, as
// kube-proxy does. What is sent to the address of a Service goes to one of its endpoints.
//
// A pure function decides what one Service needs (decide.go), and package servicetable writes it to the kernel. A
// single change is written at once; changes in quick succession share transactions (ratelimit.go).
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
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/internal/connlimit"
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/network/firstanswer"
	"proa.dev/network/servicetable"
)

// Config configures a Proxy. NodeName and the views are required.
type Config struct {
	NodeName                string
	Services, Slices, Nodes client.View
	// ClusterCIDRs are the networks of all Pods. Packets from elsewhere to a cluster IP are masqueraded, so that the answer comes back
	// through this node. If empty, no packet is.
	ClusterCIDRs []netip.Prefix
	// ServiceCIDRs are the networks of Services. Packets to an address in them that no Service has are dropped, so that they do not leave
	// the node. May be empty.
	ServiceCIDRs []netip.Prefix
	// NodeAddresses are cluster IPs that this node has itself, such as that of the cluster DNS. They get no rules.
	NodeAddresses []netip.Addr
	// Table is the name of the nftables table, "proa-services" if empty.
	Table string
	// Mark is the bit of the packet mark for packets to masquerade, 0x4000 if 0.
	Mark uint32
	// ExternalIPs are the networks whose addresses are served as external IPs of Services. Whoever may write Services can hijack traffic
	// with external IPs, so by default none is served.
	ExternalIPs []netip.Prefix
	// Balancers are the networks of load balancers. An address in the status of a Service is served if it is in one of them, or if it
	// belongs to a node and was assigned by the load balancer of the nodes. Others are not, because whoever may write a status could hijack
	// traffic with them.
	Balancers []netip.Prefix
	// ReservedPorts are ports that no Service gets at the address of a node: those of the system itself.
	ReservedPorts []uint16
	// Health is the address of the health endpoints /healthz and /livez, as ADDR:PORT; empty for none.
	Health string
	// Status is the address of /proxyMode and /healthz in the form of kube-proxy's port for metrics; empty for none.
	Status string
	// RecordEvent records a warning Event of a Service. May be nil.
	RecordEvent func(about kind.Object, reason, message string)
	// Record stores how long rules take to follow a change. May be nil.
	Record func(hop.Record)
	// Expect says that a Pod of this node has become ready at some endpoints, whose first answer completes a record. May be nil.
	Expect func(record hop.Record, endpoints ...firstanswer.Endpoint)
	// HasPod tells whether a Pod of this node is in a namespace and has an address, for Expect: whoever may write EndpointSlices could
	// otherwise see when the Pods of others are asked. If nil, all are believed.
	HasPod func(uid types.UID, namespace string, addr netip.Addr) bool
	// Answers tells whether the DNS server of the node answers for a Service, for the record. May be nil.
	Answers func(namespace, name string) bool
	// Connections bounds the clients of the health endpoints; nil for no bound.
	Connections *connlimit.Budget
	Log         *slog.Logger
}

// byService indexes EndpointSlices by their Service.
func byService() client.Index {
	return client.Index{Name: "service", Values: func(o kind.Object) []string {
		if k, ok := serviceOf(o); ok {
			return []string{k.String()}
		}
		return nil
	}}
}

// key is the namespace and name of a Service.
type key = types.NamespacedName

// Proxy keeps the rules of this node.
type Proxy struct {
	Config
	table   *servicetable.Table
	checks  *healthChecks
	metrics metrics
	nodes   *nodeAddresses
	wake    wait.Signal
	start   time.Time

	mu           sync.Mutex // guards what follows
	dirty        map[key]bool
	allDirty     bool
	triggerTimes []time.Time // when the changes that made Services dirty happened, for the latency metric
	waitingSince time.Time   // since when a change waits to be written; zero if none does
	lastWrite    time.Time   // when the rules were written last
	tracer       tracer

	reported map[key]string // the load balancer addresses that were reported as not served; used by Run only
}

// New returns a proxy; Run starts it.
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
	t, err := servicetable.Open(servicetable.Settings{Name: config.Table, Mark: config.Mark, ClusterCIDRs: config.ClusterCIDRs,
		ServiceCIDRs: config.ServiceCIDRs}, config.Log)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		Config: config, table: t, metrics: newMetrics(), nodes: newNodeAddresses(slices.Concat(config.ClusterCIDRs, config.ServiceCIDRs)),
		dirty: map[key]bool{}, reported: map[key]string{}, wake: wait.NewSignal(), start: time.Now(),
		tracer: tracer{record: config.Record, expect: config.Expect, hasPod: config.HasPod, node: config.NodeName},
	}
	if config.Answers != nil {
		p.tracer.answers = p.isAnswered
	}
	p.checks = newHealthChecks(config.Log, config.Connections, func() bool { return p.state(time.Now()).Healthy })
	return p, nil
}

// resyncPeriod is how often Run checks that no other program has removed the table or the routes.
const resyncPeriod = 30 * time.Second

// Run keeps the rules up to date until ctx ends. The rules stay in the kernel, so that connections survive a restart of the agent.
func (p *Proxy) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer p.table.Close()
	defer wg.Wait()
	defer p.checks.close()
	for _, v := range []client.View{p.Services, p.Slices, p.Nodes} {
		if err := v.Reach(ctx, 0); err != nil {
			return fmt.Errorf("read Services, EndpointSlices and Nodes: %w", err)
		}
	}
	p.nodes.load(p.Nodes)
	p.ensureRoutes()
	p.tracer.skipPresent(p.Services, p.Slices)
	p.markAllDirty()
	wg.Go(func() {
		p.follow(ctx, p.Services, func(o kind.Object) (key, bool) { return key{Namespace: o.GetNamespace(), Name: o.GetName()}, true })
	})
	wg.Go(func() { p.follow(ctx, p.Slices, serviceOf) })
	wg.Go(func() { p.followNodes(ctx) })
	wg.Go(func() { p.serveAt(ctx, p.Health, p.handler()) })
	wg.Go(func() { p.serveAt(ctx, p.Status, statusHandler()) })
	wg.Go(func() { p.table.RunCleanup(ctx) })
	backoff := wait.Backoff{First: 100 * time.Millisecond, Max: 30 * time.Second}
	var limiter rateLimiter
	resync := time.NewTicker(resyncPeriod)
	defer resync.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-p.table.DeletionDue():
		case <-resync.C:
			p.table.CheckPresent()
			p.ensureRoutes()
		}
		if !limiter.wait(ctx) {
			return nil
		}
		if err := p.sync(); err != nil {
			pause := backoff.Next()
			p.Log.Error("the rules of Services could not be written; they will all be written again", "err", err, "in", pause)
			if wait.Sleep(ctx, pause) != nil {
				return nil
			}
			p.markAllDirty()
			continue
		}
		backoff.Reset()
	}
}

// ensureRoutes calls the function ensureRoutes. It is called again and again, because the default route of the node may change.
func (p *Proxy) ensureRoutes() {
	if err := ensureRoutes(p.ServiceCIDRs); err != nil {
		p.Log.Warn("the node itself may not reach Services", "err", err)
	}
}

// apiServer is the Service of the API server.
func apiServer() key { return key{Namespace: "default", Name: "kubernetes"} }

// serviceOf returns the Service of an EndpointSlice.
func serviceOf(o kind.Object) (key, bool) {
	name := o.GetLabels()[discoveryv1.LabelServiceName]
	return key{Namespace: o.GetNamespace(), Name: name}, name != ""
}

// follow marks the Services dirty that the events of a view concern.
func (p *Proxy) follow(ctx context.Context, v client.View, concerned func(kind.Object) (key, bool)) {
	for e := range v.Events(ctx) {
		if e.Gap {
			p.markAllDirty()
			continue
		}
		if k, ok := concerned(e.Object); ok {
			p.markDirty(k, e)
			if k == apiServer() {
				p.markBalancedDirty()
			}
		}
		if e.Old == nil {
			continue
		}
		// An update may move a slice to another Service.
		if k, ok := concerned(e.Old); ok {
			p.markDirty(k, client.Event{Object: e.Old, Old: e.Old})
		}
	}
}

// followNodes marks all Services dirty when the zone or the addresses of this node change, and those with load
// balancers when the addresses of any node change.
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
			if now := p.location(); now != last {
				last = now
				p.markAllDirty()
			}
		}
		if changed {
			p.markBalancedDirty()
		}
	}
}

// location returns the zone and the addresses of this node as a text.
func (p *Proxy) location() string {
	n := p.node()
	return fmt.Sprint(n.zone, n.addresses)
}

// markBalancedDirty marks the Services dirty that have load balancers.
func (p *Proxy) markBalancedDirty() {
	for o := range p.Services.List("") {
		if svc, ok := o.(*corev1.Service); ok && len(svc.Status.LoadBalancer.Ingress) > 0 {
			p.markDirty(key{Namespace: svc.Namespace, Name: svc.Name}, client.Event{Object: svc, Old: svc})
		}
	}
}

// markDirty records that a Service is to be written again, because of an event.
func (p *Proxy) markDirty(k key, e client.Event) {
	p.mu.Lock()
	p.dirty[k] = true
	p.startWaiting()
	p.tracer.note(e)
	// Changes from before the start do not count for the latency metric.
	if t, ok := triggerTime(e.Object, e.Old); ok && t.After(p.start) {
		p.triggerTimes = append(p.triggerTimes, t)
	}
	p.mu.Unlock()
	p.wake.Send()
}

func (p *Proxy) markAllDirty() {
	p.mu.Lock()
	p.allDirty = true
	p.startWaiting()
	p.mu.Unlock()
	p.wake.Send()
}

// work is what is to be written.
type work struct {
	dirty        map[key]bool
	allDirty     bool
	triggerTimes []time.Time
	waitingSince time.Time
	traced       []*hop.Record
}

// take returns the changes since the last call.
func (p *Proxy) take() work {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := work{p.dirty, p.allDirty, p.triggerTimes, p.waitingSince, p.tracer.take()}
	p.dirty, p.allDirty, p.triggerTimes, p.waitingSince = map[key]bool{}, false, nil, time.Time{}
	return out
}

// sync decides the Services that have changed and writes them in one transaction.
func (p *Proxy) sync() error {
	start := time.Now()
	w := p.take()
	dirty := w.dirty
	if w.allDirty {
		for o := range p.Services.List("") {
			dirty[key{Namespace: o.GetNamespace(), Name: o.GetName()}] = true
		}
		for k := range p.table.Services() {
			dirty[k] = true
		}
	}
	node := p.node()
	for k := range dirty {
		want := p.decide(k, node)
		p.reportUnserved(k, want.unserved)
		p.table.Set(k, want.ports)
		p.checks.set(k, want.health)
	}
	err := p.table.Commit()
	p.metrics.observe(start, w.triggerTimes, err)
	p.stopWaiting(w.waitingSince, err)
	p.tracer.written(w.traced, start, err)
	if err != nil {
		p.mu.Lock()
		p.tracer.keep(w.traced)
		p.mu.Unlock()
		return err
	}
	for _, problem := range p.checks.apply() {
		p.reportHealthProblem(problem)
	}
	return nil
}

// decide reads one Service from the views and decides what it needs.
func (p *Proxy) decide(k key, node nodeFacts) wanted {
	o, ok := p.Services.Get(k.Namespace, k.Name)
	if !ok {
		return wanted{}
	}
	svc, ok := o.(*corev1.Service)
	if !ok {
		return wanted{}
	}
	var list []*discoveryv1.EndpointSlice
	for o := range p.Slices.By(byService(), k.String()) {
		if s, ok := o.(*discoveryv1.EndpointSlice); ok {
			list = append(list, s)
		}
	}
	return decide(svc, list, node)
}

// isAnswered tells whether the DNS server of the node answers for a Service that has changed, or for a headless Service whose endpoints
// have.
func (p *Proxy) isAnswered(o kind.Object) bool {
	k := key{Namespace: o.GetNamespace(), Name: o.GetName()}
	if _, isSlice := o.(*discoveryv1.EndpointSlice); isSlice {
		k, _ = serviceOf(o)
		found, _ := p.Services.Get(k.Namespace, k.Name)
		if svc, ok := found.(*corev1.Service); !ok || svc.Spec.ClusterIP != corev1.ClusterIPNone {
			return false
		}
	}
	return p.Answers(k.Namespace, k.Name)
}

// node returns the facts about this node that decisions depend on.
func (p *Proxy) node() nodeFacts {
	facts := nodeFacts{name: p.NodeName, answers: p.NodeAddresses, allowed: allowed{p.ExternalIPs, p.Balancers, p.nodes.has, p.kept()}}
	if o, _ := p.Nodes.Get("", p.NodeName); o != nil {
		facts.zone, facts.addresses = o.GetLabels()[corev1.LabelTopologyZone], p.nodes.addressesOf(o)
	}
	return facts
}

// kept returns the ports that no Service gets at the address of a node: those of the settings, and those of the API servers.
func (p *Proxy) kept() []uint16 {
	out := slices.Clone(p.ReservedPorts)
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

// reportHealthProblem logs that a health check port cannot be opened, and records an Event.
func (p *Proxy) reportHealthProblem(problem healthProblem) {
	message := fmt.Sprintf("node %s failed to start healthcheck %q on port %d: %v", p.NodeName, problem.key, problem.port, problem.err)
	p.Log.Error("the health check of a Service cannot be started", "service", problem.key, "port", problem.port, "err", problem.err)
	if o, ok := p.Services.Get(problem.key.Namespace, problem.key.Name); ok && p.RecordEvent != nil {
		p.RecordEvent(o, "FailedToStartServiceHealthcheck", message)
	}
}

// Purge removes the rules and the routes to Services. An empty name stands for the default table.
func Purge(tableName string, networks []netip.Prefix) error {
	if tableName == "" {
		tableName = "proa-services"
	}
	return errors.Join(servicetable.Remove(tableName), RemoveRoutes(networks))
}
