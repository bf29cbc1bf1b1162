// Package gateway is the controller of the Gateway API (gateway.networking.k8s.io): Gateways with HTTPRoutes,
// GRPCRoutes and TLSRoutes, which users install as custom resources. It runs in the servers that have a node, under an
// identity of its own, beside package ingress and with the same proxy, package httpproxy. Where the definitions are not
// installed, nothing of it runs.
//
// Package gatewayplan decides what is served and what the statuses say. This package carries it out: it opens a port of the proxy for each
// port of a Gateway (socket.go), and writes the Service and EndpointSlice that give the Gateway an address, and the statuses (publish.go).
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/internal/connlimit"
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/network/gatewayplan"
	"proa.dev/network/httpproxy"
	"proa.dev/network/proxysync"
)

// The resources of the Gateway API.
const (
	classes      = "gatewayclasses"
	gateways     = "gateways"
	httpRoutes   = "httproutes"
	grpcRoutes   = "grpcroutes"
	tlsRoutes    = "tlsroutes"
	grants       = "referencegrants"
	policies     = "backendtlspolicies"
	listenerSets = "listenersets"
)

func resource(name string) schema.GroupResource {
	return schema.GroupResource{Group: gw.GroupName, Resource: name}
}

// Config configures the controller. NodeName and Client are required.
type Config struct {
	NodeName string
	// Class is the name of the GatewayClass that is created when the definitions are installed; empty creates none.
	Class string
	// Ranges are the networks of Pods and Services. Addresses of nodes that are inside them are ignored.
	Ranges []netip.Prefix
	// Client reads and writes as the service account of the controller.
	Client client.Client
	// Define tells Client of a custom resource and the version in which it is served; nil for a client that knows custom resources.
	Define  func(plural string, of schema.GroupVersionKind, scope kind.Scope)
	Metrics *httpproxy.Metrics // may be nil
	// Record stores how long it takes until the proxy follows a change of a Gateway or a route. May be nil.
	Record func(hop.Record)
	// Answered is called when a new endpoint has answered, as in httpproxy.Config. May be nil.
	Answered func(endpoint netip.AddrPort, sent time.Time) bool
	// Connections bounds the clients of all ports; nil for no bound.
	Connections *connlimit.Budget
	// Listen opens a port of TCP, or takes over one that another process has open under a name; nil opens it.
	Listen func(name, address string) (net.Listener, error)
	// Synced is called when the proxy serves what the views have; may be nil.
	Synced func()
	// Drain counts what is in flight; may be nil.
	Drain *httpproxy.Drain
	Log   *slog.Logger
}

// key is the namespace and name of an object.
type key = types.NamespacedName

// server serves Gateways with one set of installed definitions.
type server struct {
	Config
	custom  map[string]client.View // by the name of the resource; nil for those that are not defined
	builtin map[schema.GroupResource]client.View
	changes *proxysync.Collector
	records *proxysync.ProgramRecorder
	// publish is sent when statuses or Services of Gateways may have to be written.
	publish wait.Signal

	// What follows is used by run only.
	decoded      decoded
	plan         *gatewayplan.Plan
	pools        *proxysync.Pools
	sockets      map[socketKey]*socket
	certificates proxysync.Certificates
	counted      map[httpproxy.Owner]bool // the routes that have metrics

	mu     sync.Mutex // guards latest
	latest *outcome
}

// outcome is what publish needs of the last plan.
type outcome struct {
	*gatewayplan.Plan
	open   map[key]map[int32]int       // the ports of the proxy, by Gateway and port of the Gateway
	failed map[key]gatewayplan.Problem // Gateways with a port that could not be opened
}

// builtins returns the built-in resources that are read.
func builtins() []schema.GroupResource {
	return []schema.GroupResource{gr.Services, gr.EndpointSlices, gr.Secrets, gr.ConfigMaps, gr.Namespaces, gr.Nodes}
}

// newServer opens the views of the definitions that are installed and of the built-in resources.
func newServer(ctx context.Context, c Config, defined []string) (*server, error) {
	s := &server{
		Config: c, custom: map[string]client.View{}, builtin: map[schema.GroupResource]client.View{},
		changes: proxysync.NewCollector(), publish: wait.NewSignal(), sockets: map[socketKey]*socket{},
		records: proxysync.NewProgramRecorder(c.Record, c.NodeName),
	}
	for _, name := range defined {
		v, err := c.Client.View(ctx, resource(name))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		s.custom[name] = v
	}
	for _, on := range builtins() {
		v, err := c.Client.View(ctx, on)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", on, err)
		}
		s.builtin[on] = v
	}
	s.pools = proxysync.NewPools(s.builtin[gr.Services], s.builtin[gr.EndpointSlices])
	return s, nil
}

// run serves Gateways until ctx ends.
func (s *server) run(ctx context.Context) error {
	for _, v := range slices.AppendSeq(slices.Collect(maps.Values(s.custom)), maps.Values(s.builtin)) {
		if err := v.Reach(ctx, 0); err != nil {
			return fmt.Errorf("read the resources of Gateways: %w", err)
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer s.close()
	for _, name := range recorded() {
		if v := s.custom[name]; v != nil {
			s.records.SkipPresent(resource(name), v)
		}
	}
	s.follow(ctx, &wg)
	wg.Go(func() {
		proxysync.KeepPublished(ctx, s.publish, wait.Backoff{First: firstBackoff, Max: maxBackoff}, s.publishLatest)
	})
	s.changes.NoteAll()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.changes.Changed():
		}
		s.sync(ctx)
		s.Synced()
		if wait.Sleep(ctx, proxysync.Delay) != nil {
			return nil
		}
	}
}

func (s *server) close() {
	var wg sync.WaitGroup
	for _, k := range s.sockets {
		wg.Go(k.close)
	}
	wg.Wait()
	s.pools.Close()
}

// follow collects the changes of the views until ctx ends.
func (s *server) follow(ctx context.Context, wg *sync.WaitGroup) {
	watch := func(v client.View, record func(*proxysync.Changes, client.Event)) {
		wg.Go(func() { s.changes.Follow(ctx, v, record) })
	}
	for name, v := range s.custom {
		isRecorded := slices.Contains(recorded(), name)
		watch(v, func(c *proxysync.Changes, e client.Event) {
			if isRecorded {
				s.records.Note(resource(name), e)
			}
			c.All = c.All || e.Deleted || e.Old == nil || e.Old.GetGeneration() != e.Object.GetGeneration() ||
				e.Old.GetUID() != e.Object.GetUID() ||
				(e.Old.GetDeletionTimestamp() == nil) != (e.Object.GetDeletionTimestamp() == nil)
			s.publish.Send()
		})
	}
	watch(s.builtin[gr.Services], func(c *proxysync.Changes, e client.Event) {
		proxysync.NoteService(c, e)
		if e.Deleted || e.Object.GetLabels()[gatewayplan.LabelGateway] != "" {
			s.publish.Send()
		}
	})
	watch(s.builtin[gr.Secrets], proxysync.NoteSecret)
	watch(s.builtin[gr.ConfigMaps], proxysync.NoteConfigMap)
	watch(s.builtin[gr.EndpointSlices], proxysync.NoteEndpoints)
	watch(s.builtin[gr.Namespaces], func(c *proxysync.Changes, e client.Event) {
		c.All = c.All || e.Deleted || e.Old == nil || !maps.Equal(e.Old.GetLabels(), e.Object.GetLabels())
	})
	wg.Go(func() {
		for e := range s.builtin[gr.Nodes].Events(ctx) {
			if e.Gap || e.Object.GetName() == s.NodeName || e.Deleted || isReady(e.Old) != isReady(e.Object) {
				s.publish.Send()
			}
		}
	})
}

func isReady(o kind.Object) bool {
	n, ok := o.(*corev1.Node)
	return ok && gatewayplan.IsReady(n)
}

// sync configures the proxy after the changes since the last call.
func (s *server) sync(ctx context.Context) {
	begin, c, changes := time.Now(), s.changes.Take(), s.records.Take()
	if s.plan == nil || c.All || proxysync.Intersect(c.Services, s.plan.Services) || proxysync.Intersect(c.Secrets, s.plan.Secrets) ||
		proxysync.Intersect(c.ConfigMaps, s.plan.ConfigMaps) {
		s.rebuild(ctx)
	} else {
		s.pools.Update(c.Endpoints)
	}
	s.records.Programmed(changes, begin, s.isProgrammed)
}

// recorded returns the resources whose changes are recorded: those that users wait for.
func recorded() []string { return []string{gateways, httpRoutes, grpcRoutes, tlsRoutes} }

// isProgrammed tells whether the proxy serves the Gateway or the route of a record, and why it cannot.
func (s *server) isProgrammed(r *hop.Record) (bool, error) {
	k := key{Namespace: r.Namespace, Name: r.Name}
	if r.Resource != gateways {
		return len(s.latest.open) > 0 && s.plan.HasRules(r.UID), nil
	}
	if problem, failed := s.latest.failed[k]; failed {
		return true, errors.New(problem.Message)
	}
	return len(s.latest.open[k]) > 0, nil
}

// rebuild makes a new plan and configures the proxy with it.
func (s *server) rebuild(ctx context.Context) {
	s.decoded.begin()
	w := s.readWorld()
	s.decoded.end()
	s.plan = gatewayplan.Decide(w)
	s.certificates.DropUnused()
	out := &outcome{Plan: s.plan, open: map[key]map[int32]int{}, failed: map[key]gatewayplan.Problem{}}
	s.openSockets(ctx, out)
	s.pools.DropUnused()
	s.dropMetrics()
	s.mu.Lock()
	s.latest = out
	s.mu.Unlock()
	s.publish.Send()
}

// dropMetrics removes the metrics of routes that are not served any more.
func (s *server) dropMetrics() {
	now := s.plan.Owners()
	if s.Metrics != nil {
		for o := range s.counted {
			if !now[o] {
				s.Metrics.Forget(o)
			}
		}
	}
	s.counted = now
}

// readWorld reads all objects that a plan is made from.
func (s *server) readWorld() *gatewayplan.World {
	return &gatewayplan.World{
		Classes: list[gw.GatewayClass](s, classes), Gateways: list[gw.Gateway](s, gateways),
		ListenerSets: list[gw.ListenerSet](s, listenerSets),
		HTTPRoutes:   list[gw.HTTPRoute](s, httpRoutes), GRPCRoutes: list[gw.GRPCRoute](s, grpcRoutes),
		TLSRoutes: list[gw.TLSRoute](s, tlsRoutes),
		Grants:    list[gw.ReferenceGrant](s, grants), Policies: list[gw.BackendTLSPolicy](s, policies),
		NamespaceLabels: func(namespace string) map[string]string {
			if n := proxysync.Find[*corev1.Namespace](s.builtin[gr.Namespaces], key{Name: namespace}); n != nil {
				return n.Labels
			}
			return nil
		},
		Service:     func(k key) *corev1.Service { return proxysync.Find[*corev1.Service](s.builtin[gr.Services], k) },
		Secret:      func(k key) *corev1.Secret { return proxysync.Find[*corev1.Secret](s.builtin[gr.Secrets], k) },
		ConfigMap:   func(k key) *corev1.ConfigMap { return proxysync.Find[*corev1.ConfigMap](s.builtin[gr.ConfigMaps], k) },
		Certificate: s.certificates.Load,
	}
}

var errNoNode = errors.New("the node has no address yet")
