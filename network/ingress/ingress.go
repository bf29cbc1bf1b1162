// Package ingress serves Ingresses: requests from outside that come to this machine are sent straight to the endpoints of
// Services. It runs in the servers that have a node, under an identity of its own, because it reads Secrets and nodes must not.
//
// What shall be served is decided by pure functions (translate.go, endpoints.go, status.go); the requests are the business of
// package route. Here the two are brought together: what happens in the cluster becomes a new table, or other endpoints of
// a pool, and ports are open while an Ingress needs them.
package ingress

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
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/network/route"
)

// Controller is what the classes of Ingresses that are served here name.
const Controller = "proa.dev/ingress"

// Ingresses and Classes name the resources.
func Ingresses() schema.GroupResource {
	return schema.GroupResource{Group: networkingv1.GroupName, Resource: "ingresses"}
}

// Classes names the resource of classes.
func Classes() schema.GroupResource {
	return schema.GroupResource{Group: networkingv1.GroupName, Resource: "ingressclasses"}
}

// Config says what is served, and where. The views and the name of the node must be given.
type Config struct {
	NodeName string
	// Class is the name of the class that the old annotation may have without there being an object.
	Class string
	// HTTPPort and HTTPSPort are opened on all addresses; 0 for none.
	HTTPPort, HTTPSPort int
	// Ranges are the networks of Pods and Services. No node has an address there, whatever it says.
	Ranges []netip.Prefix
	// Views is what is read.
	Views
	// Writer writes the status of Ingresses.
	Writer client.Writer
	// Complain tells people that something is wrong with an Ingress, as an Event. May be nil.
	Complain func(about kind.Object, reason, message string)
	Metrics  *route.Metrics // may be nil
	// Listen opens a port; net.Listen if nil.
	Listen func(network, address string) (net.Listener, error)
	Log    *slog.Logger
}

// Views are what is read of the cluster. Of Nodes it is the addresses.
type Views struct {
	Ingresses, Classes, Services, Slices, Secrets, Nodes client.View
}

func (v *Views) all() []client.View {
	return []client.View{v.Ingresses, v.Classes, v.Services, v.Slices, v.Secrets, v.Nodes}
}

// Server serves Ingresses.
type Server struct {
	Config
	proxy        *route.Proxy
	plain, tls   *door
	wake, status chan struct{}

	// What follows belongs to Run.
	plan    plan
	pools   map[route.Ref]*route.Pool
	secrets secrets
	known   map[complaint]bool
	// reachable says which endpoints may be asked; tests may ask more.
	reachable func(netip.Addr) bool

	mu     sync.Mutex // guards what follows
	dirty  dirty
	served served
}

// complaint is a problem that people have been told about.
type complaint struct {
	uid             types.UID
	reason, message string
}

// dirty is what has changed since the last look.
type dirty struct {
	all                       bool
	services, secrets, slices map[key]bool
}

func clean() dirty {
	return dirty{services: map[key]bool{}, secrets: map[key]bool{}, slices: map[key]bool{}}
}

// settle is how long changes are collected after some have been made.
const settle = 20 * time.Millisecond

// New makes a server; Run starts it.
func New(c Config) (*Server, error) {
	for _, v := range c.all() {
		if v == nil {
			return nil, errors.New("ingress: views of Ingresses, IngressClasses, Services, EndpointSlices, Secrets and Nodes must be given")
		}
	}
	if c.NodeName == "" || c.Writer == nil {
		return nil, errors.New("ingress: the name of the node and a writer must be given")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Listen == nil {
		c.Listen = net.Listen
	}
	if c.Complain == nil {
		c.Complain = func(kind.Object, string, string) {}
	}
	s := &Server{
		Config: c, wake: make(chan struct{}, 1), status: make(chan struct{}, 1),
		pools: map[route.Ref]*route.Pool{}, secrets: secrets{read: map[types.UID]parsed{}}, known: map[complaint]bool{}, dirty: clean(), reachable: Reachable,
	}
	s.proxy = route.NewProxy(route.Config{HTTPPort: c.HTTPPort, HTTPSPort: c.HTTPSPort, Metrics: c.Metrics, Log: c.Log})
	s.plain = &door{port: c.HTTPPort, listen: c.Listen, proxy: s.proxy, lost: func() { signal(s.wake) }, log: c.Log, pause: firstPause}
	s.tls = &door{port: c.HTTPSPort, secure: true, listen: c.Listen, proxy: s.proxy, lost: func() { signal(s.wake) }, log: c.Log, pause: firstPause}
	return s, nil
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	for _, v := range s.all() {
		if err := v.Reach(ctx, 0); err != nil {
			return fmt.Errorf("read what Ingresses are made of: %w", err)
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer s.close(context.WithoutCancel(ctx))
	s.follow(ctx, &wg)
	wg.Go(func() { s.keepStatus(ctx) })
	s.touchAll()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-s.plain.again():
		case <-s.tls.again():
		}
		s.sync(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(settle):
		}
	}
}

func (s *Server) close(ctx context.Context) {
	var wg sync.WaitGroup
	for _, d := range []*door{s.plain, s.tls} {
		wg.Go(func() { d.close(ctx) })
	}
	wg.Wait()
	for _, p := range s.pools {
		p.Set(nil)
	}
}

// follow notes what changes.
func (s *Server) follow(ctx context.Context, wg *sync.WaitGroup) {
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
	watch(s.Ingresses, func(d *dirty, e client.Event) {
		d.all = d.all || e.Deleted || e.Old == nil || changed(e.Old, e.Object)
		signal(s.status)
	})
	watch(s.Classes, func(d *dirty, _ client.Event) { d.all = true })
	watch(s.Services, func(d *dirty, e client.Event) { d.services[keyOf(e.Object)] = true })
	watch(s.Secrets, func(d *dirty, e client.Event) { d.secrets[keyOf(e.Object)] = true })
	watch(s.Slices, func(d *dirty, e client.Event) {
		for _, o := range []kind.Object{e.Object, e.Old} { // it may have been given to another Service
			if o != nil {
				d.slices[key{o.GetNamespace(), o.GetLabels()[discoveryv1.LabelServiceName]}] = true
			}
		}
	})
	wg.Go(func() {
		for range s.Nodes.Events(ctx) {
			signal(s.status)
		}
	})
}

func keyOf(o kind.Object) key { return key{o.GetNamespace(), o.GetName()} }

// changed says that an Ingress has changed in what counts. Its status does not.
func changed(old, now kind.Object) bool {
	return old.GetGeneration() != now.GetGeneration() || old.GetUID() != now.GetUID() ||
		(old.GetDeletionTimestamp() == nil) != (now.GetDeletionTimestamp() == nil) || !maps.Equal(old.GetAnnotations(), now.GetAnnotations())
}

func (s *Server) touch(note func(*dirty)) {
	s.mu.Lock()
	note(&s.dirty)
	s.mu.Unlock()
	signal(s.wake)
}

func (s *Server) touchAll() { s.touch(func(d *dirty) { d.all = true }) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *Server) take() dirty {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.dirty
	s.dirty = clean()
	return d
}

// sync brings the proxy to what the cluster says.
func (s *Server) sync(ctx context.Context) {
	d := s.take()
	if d.all || meets(d.services, s.plan.services) || meets(d.secrets, s.plan.secrets) {
		s.rebuild()
	} else {
		for ref, p := range s.pools {
			if d.slices[key{ref.Namespace, ref.Service}] {
				p.Set(s.endpoints(ref))
			}
		}
	}
	s.openDoors(ctx)
}

func meets(a, b map[key]bool) bool {
	for k := range a {
		if b[k] {
			return true
		}
	}
	return false
}

// rebuild makes a new table.
func (s *Server) rebuild() {
	w := world{
		own: s.Class, secure: s.HTTPSPort != 0,
		class: func(name string) *networkingv1.IngressClass {
			return find[*networkingv1.IngressClass](s.Classes, key{"", name})
		},
		service: func(k key) *corev1.Service { return find[*corev1.Service](s.Services, k) },
		trusted: func(k key) (string, error) { return trusted(find[*corev1.Secret](s.Secrets, k)) },
	}
	for o := range s.Ingresses.List("") {
		if in, ok := o.(*networkingv1.Ingress); ok {
			w.ingresses = append(w.ingresses, in)
		}
	}
	old := s.plan
	s.plan = translate(w)
	used := map[route.Ref]bool{}
	table := route.NewTable(s.plan.rules, func(ref route.Ref) *route.Pool {
		used[ref] = true
		p := s.pools[ref]
		if p == nil {
			p = route.NewPool(ref)
			s.pools[ref] = p
		}
		return p
	})
	for ref := range used {
		s.pools[ref].Set(s.endpoints(ref))
	}
	s.proxy.Swap(table, s.certificates())
	for ref, p := range s.pools {
		if !used[ref] {
			p.Set(nil)
			delete(s.pools, ref)
		}
	}
	s.tell()
	s.serve(old.ours)
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

// ByService finds the EndpointSlices of a Service. Others index the same view under the same name by the same values.
func ByService() client.Index {
	return client.Index{Name: "service", Of: func(o kind.Object) []string {
		if name := o.GetLabels()[discoveryv1.LabelServiceName]; name != "" {
			return []string{o.GetNamespace() + "/" + name}
		}
		return nil
	}}
}

// endpoints are those of a backend now.
func (s *Server) endpoints(ref route.Ref) []netip.AddrPort {
	k := key{ref.Namespace, ref.Service}
	var list []*discoveryv1.EndpointSlice
	for o := range s.Slices.By(ByService(), k.String()) {
		if e, ok := o.(*discoveryv1.EndpointSlice); ok {
			list = append(list, e)
		}
	}
	return EndpointsOf(find[*corev1.Service](s.Services, k), ref, list, s.reachable)
}

// certificates reads what the plan names.
func (s *Server) certificates() map[string]*route.Certificate {
	out := map[string]*route.Certificate{}
	used := map[types.UID]bool{}
	now := time.Now()
	for _, c := range s.plan.certs {
		complain := func(text string) {
			s.plan.problems = append(s.plan.problems, problem{c.about, badSecret, fmt.Sprintf("the Secret %s: %s", c.secret, text)})
		}
		secret := find[*corev1.Secret](s.Secrets, c.secret)
		if secret == nil {
			complain("there is none; clients get a certificate that says nothing")
			continue
		}
		used[secret.UID] = true
		cert, err := s.secrets.load(secret)
		if err != nil {
			complain(err.Error() + "; clients get a certificate that says nothing")
			continue
		}
		if text := doubts(cert, c.host, now); text != "" {
			complain(text)
		}
		out[c.host] = cert
	}
	s.secrets.keep(used)
	return out
}

// tell makes Events of problems that are new.
func (s *Server) tell() {
	now := map[complaint]bool{}
	for _, p := range s.plan.problems {
		c := complaint{p.about.UID, p.reason, p.message}
		if !s.known[c] && !now[c] {
			s.Complain(p.about, p.reason, p.message)
			s.Log.Warn("an Ingress is not served as it says", "ingress", p.about.Namespace+"/"+p.about.Name, "reason", p.reason, "message", p.message)
		}
		now[c] = true
	}
	s.known = now
}
