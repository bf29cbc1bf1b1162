// Package gateway serves the Gateway API (gateway.networking.k8s.io): Gateways with HTTPRoutes, GRPCRoutes and TLSRoutes, which users
// install as custom resources. It runs in the servers that have a node, under an identity of its own, beside package ingress and with the
// same proxy, package route. Where the definitions are not installed, nothing of it runs.
//
// What is served, and what the statuses say, is decided by pure functions (decide.go, attach.go, rules.go, status.go). The rest brings it
// about: a port of the proxy for each port of a Gateway (socket.go), a Service with an EndpointSlice that gives the Gateway an address
// (infra.go), and the statuses (publish.go).
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/network/ingress"
	"proa.dev/network/route"
)

// Controller is what the classes of Gateways that are served here name.
const Controller = "proa.dev/gateway"

// The resources of the standard.
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
	return schema.GroupResource{Group: group, Resource: name}
}

// Config says what is served, and where.
type Config struct {
	NodeName string
	// Class is the name of the GatewayClass that is made when the definitions come; empty makes none.
	Class string
	// Ranges are the networks of Pods and Services. No node has an address there, whatever it says.
	Ranges []netip.Prefix
	// Client reads and writes as the account of the controller.
	Client  client.Client
	Metrics *route.Metrics // may be nil
	// Listen opens a port; net.Listen if nil.
	Listen func(network, address string) (net.Listener, error)
	Log    *slog.Logger
}

// server serves Gateways as long as the definitions stay what they are.
type server struct {
	Config
	custom  map[string]client.View // by the name of the resource of the standard; those that are not defined are missing
	builtin map[schema.GroupResource]client.View
	wake    chan struct{}
	publish chan struct{}

	// What follows belongs to the loop of run.
	decoded  decoded
	plan     *plan
	pools    map[route.Ref]*route.Pool
	sockets  map[socketKey]*socket
	parsed   map[key]parsedSecret
	counted  map[route.Owner]bool
	reaching func(netip.Addr) bool

	mu     sync.Mutex // guards what follows
	dirty  dirty
	latest *outcome
}

// outcome is what the publisher needs of the last plan.
type outcome struct {
	*plan
	open map[key]map[int32]int // the ports of the proxy by Gateway and port
	lack map[key]verdict       // Gateways whose ports could not be opened
}

// dirty is what has changed since the last look.
type dirty struct {
	all                              bool
	services, secrets, maps, backend map[key]bool
}

func clean() dirty {
	return dirty{services: map[key]bool{}, secrets: map[key]bool{}, maps: map[key]bool{}, backend: map[key]bool{}}
}

// settle is how long changes are collected after some have been made.
const settle = 20 * time.Millisecond

// builtins are the resources that every cluster has and that are read here.
func builtins() []schema.GroupResource {
	return []schema.GroupResource{gr.Services, gr.EndpointSlices, gr.Secrets, gr.ConfigMaps, gr.Namespaces, gr.Nodes}
}

// newServer opens the views of what is defined.
func newServer(ctx context.Context, c Config, defined []string) (*server, error) {
	s := &server{
		Config: c, custom: map[string]client.View{}, builtin: map[schema.GroupResource]client.View{}, wake: make(chan struct{}, 1), publish: make(chan struct{}, 1),
		pools: map[route.Ref]*route.Pool{}, sockets: map[socketKey]*socket{}, parsed: map[key]parsedSecret{}, dirty: clean(), reaching: ingress.Reachable,
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
	return s, nil
}

// run serves until ctx ends.
func (s *server) run(ctx context.Context) error {
	for _, v := range s.custom {
		if err := v.Reach(ctx, 0); err != nil {
			return fmt.Errorf("read what Gateways are made of: %w", err)
		}
	}
	for _, v := range s.builtin {
		if err := v.Reach(ctx, 0); err != nil {
			return fmt.Errorf("read what Gateways are made of: %w", err)
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer s.close()
	s.follow(ctx, &wg)
	wg.Go(func() { s.keepPublished(ctx) })
	s.touch(func(d *dirty) { d.all = true })
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}
		s.sync(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(settle):
		}
	}
}

func (s *server) close() {
	var wg sync.WaitGroup
	for _, k := range s.sockets {
		wg.Go(k.close)
	}
	wg.Wait()
	for _, p := range s.pools {
		p.Set(nil)
	}
}

// follow notes what changes.
func (s *server) follow(ctx context.Context, wg *sync.WaitGroup) {
	watch := func(v client.View, note func(d *dirty, e client.Event)) {
		wg.Go(func() {
			for e := range v.Events(ctx) {
				s.touch(func(d *dirty) {
					if e.Gap {
						d.all = true
					} else {
						note(d, e)
					}
				})
			}
		})
	}
	for _, v := range s.custom {
		watch(v, func(d *dirty, e client.Event) {
			d.all = d.all || e.Deleted || e.Old == nil || e.Old.GetGeneration() != e.Object.GetGeneration() || e.Old.GetUID() != e.Object.GetUID() ||
				(e.Old.GetDeletionTimestamp() == nil) != (e.Object.GetDeletionTimestamp() == nil)
			signal(s.publish)
		})
	}
	note := func(to func(*dirty) map[key]bool) func(*dirty, client.Event) {
		return func(d *dirty, e client.Event) { to(d)[keyOf(e.Object)] = true }
	}
	watch(s.builtin[gr.Services], func(d *dirty, e client.Event) {
		d.services[keyOf(e.Object)] = true
		if e.Deleted || e.Object.GetLabels()[labelGateway] != "" {
			signal(s.publish)
		}
	})
	watch(s.builtin[gr.Secrets], note(func(d *dirty) map[key]bool { return d.secrets }))
	watch(s.builtin[gr.ConfigMaps], note(func(d *dirty) map[key]bool { return d.maps }))
	watch(s.builtin[gr.Namespaces], func(d *dirty, e client.Event) {
		d.all = d.all || e.Deleted || e.Old == nil || !maps.Equal(e.Old.GetLabels(), e.Object.GetLabels())
	})
	watch(s.builtin[gr.EndpointSlices], func(d *dirty, e client.Event) {
		for _, o := range []kind.Object{e.Object, e.Old} { // it may have been given to another Service
			if o != nil {
				d.backend[key{o.GetNamespace(), o.GetLabels()[discoveryv1.LabelServiceName]}] = true
			}
		}
	})
	wg.Go(func() {
		for e := range s.builtin[gr.Nodes].Events(ctx) {
			if e.Gap || e.Object.GetName() == s.NodeName || e.Deleted || readyOf(e.Old) != readyOf(e.Object) {
				signal(s.publish)
			}
		}
	})
}

func readyOf(o kind.Object) bool {
	n, ok := o.(*corev1.Node)
	return ok && isReady(n)
}

func (s *server) touch(note func(*dirty)) {
	s.mu.Lock()
	note(&s.dirty)
	s.mu.Unlock()
	signal(s.wake)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sync brings the proxy to what the cluster says.
func (s *server) sync(ctx context.Context) {
	s.mu.Lock()
	d := s.dirty
	s.dirty = clean()
	s.mu.Unlock()
	if s.plan == nil || d.all || meets(d.services, s.plan.services) || meets(d.secrets, s.plan.secrets) || meets(d.maps, s.plan.configMaps) {
		s.rebuild(ctx)
		return
	}
	for ref, p := range s.pools {
		if d.backend[key{ref.Namespace, ref.Service}] {
			p.Set(s.endpoints(ref))
		}
	}
}

func meets(a, b map[key]bool) bool {
	for k := range a {
		if b[k] {
			return true
		}
	}
	return false
}

// rebuild makes a new plan, and puts it into place.
func (s *server) rebuild(ctx context.Context) {
	s.decoded.begin()
	w := s.look()
	s.decoded.end()
	s.plan = decide(w)
	used := map[route.Ref]bool{}
	pool := func(ref route.Ref) *route.Pool {
		p := s.pools[ref]
		if p == nil {
			p = route.NewPool(ref)
			s.pools[ref] = p
		}
		if !used[ref] {
			used[ref] = true
			p.Set(s.endpoints(ref))
		}
		return p
	}
	out := &outcome{plan: s.plan, open: map[key]map[int32]int{}, lack: map[key]verdict{}}
	s.openSockets(ctx, out, pool)
	for ref, p := range s.pools {
		if !used[ref] {
			p.Set(nil)
			delete(s.pools, ref)
		}
	}
	for k := range s.parsed {
		if !s.plan.secrets[k] {
			delete(s.parsed, k)
		}
	}
	s.forgetOwners()
	s.mu.Lock()
	s.latest = out
	s.mu.Unlock()
	signal(s.publish)
}

// forgetOwners drops the numbers of routes that are served no more.
func (s *server) forgetOwners() {
	now := map[route.Owner]bool{}
	for _, g := range s.plan.gateways {
		for _, l := range g.listeners {
			for i := range l.rules {
				now[l.rules[i].Owner] = true
			}
		}
	}
	if s.Metrics != nil {
		for o := range s.counted {
			if !now[o] {
				s.Metrics.Forget(o)
			}
		}
	}
	s.counted = now
}

// endpoints are those of a backend now.
func (s *server) endpoints(ref route.Ref) []netip.AddrPort {
	k := key{ref.Namespace, ref.Service}
	var list []*discoveryv1.EndpointSlice
	for o := range s.builtin[gr.EndpointSlices].By(ingress.ByService(), k.String()) {
		if e, ok := o.(*discoveryv1.EndpointSlice); ok {
			list = append(list, e)
		}
	}
	return ingress.EndpointsOf(find[*corev1.Service](s.builtin[gr.Services], k), ref, list, s.reaching)
}

// find gets an object from a view; nil if there is none.
func find[T kind.Object](v client.View, k key) (none T) {
	o, ok := v.Get(k.namespace, k.name)
	if !ok {
		return none
	}
	t, _ := o.(T)
	return t
}

// parsedSecret is the certificate of a version of a Secret.
type parsedSecret struct {
	version string
	cert    *route.Certificate
	err     error
}

// certificate reads the certificate of a Secret, once for each of its versions.
func (s *server) certificate(secret *corev1.Secret) (*route.Certificate, error) {
	k := keyOf(secret)
	p, ok := s.parsed[k]
	if version := string(secret.UID) + secret.ResourceVersion; !ok || p.version != version {
		p = parsedSecret{version: version}
		p.cert, p.err = ingress.ParseCertificate(secret)
		s.parsed[k] = p
	}
	return p.cert, p.err
}

// look reads the world.
func (s *server) look() *world {
	return &world{
		classes: list[gw.GatewayClass](s, classes), gateways: list[gw.Gateway](s, gateways), http: list[gw.HTTPRoute](s, httpRoutes), grpc: list[gw.GRPCRoute](s, grpcRoutes),
		tls: list[gw.TLSRoute](s, tlsRoutes), grants: list[gw.ReferenceGrant](s, grants), policies: list[gw.BackendTLSPolicy](s, policies), listeners: list[gw.ListenerSet](s, listenerSets),
		labels: func(namespace string) map[string]string {
			if n := find[*corev1.Namespace](s.builtin[gr.Namespaces], key{"", namespace}); n != nil {
				return n.Labels
			}
			return nil
		},
		service:     func(k key) *corev1.Service { return find[*corev1.Service](s.builtin[gr.Services], k) },
		secret:      func(k key) *corev1.Secret { return find[*corev1.Secret](s.builtin[gr.Secrets], k) },
		configMap:   func(k key) *corev1.ConfigMap { return find[*corev1.ConfigMap](s.builtin[gr.ConfigMaps], k) },
		certificate: s.certificate,
	}
}

var errNoNode = errors.New("the node has no address yet")
