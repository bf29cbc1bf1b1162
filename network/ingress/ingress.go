// Package ingress is the controller of Ingresses: requests that reach this machine from outside are proxied to the
// endpoints of Services. It runs in the servers that have a node, under an identity of its own, because it reads
// Secrets and nodes must not.
//
// Pure functions decide what is served (translate.go, status.go), and package httpproxy handles the requests. The Server connects the two:
// it turns changes of the cluster into a new routing table or new endpoints of a pool, and keeps ports open while an Ingress needs them.
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
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/internal/connlimit"
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/network/httpproxy"
	"proa.dev/network/proxysync"
)

// Controller is the controller name in the IngressClasses that are served here.
const Controller = "proa.dev/ingress"

// Ingresses returns the resource of Ingresses.
func Ingresses() schema.GroupResource {
	return schema.GroupResource{Group: networkingv1.GroupName, Resource: "ingresses"}
}

// Classes returns the resource of IngressClasses.
func Classes() schema.GroupResource {
	return schema.GroupResource{Group: networkingv1.GroupName, Resource: "ingressclasses"}
}

// Config configures a Server. The views, the writer and the name of the node are required.
type Config struct {
	NodeName string
	// Class is the name of a class that is served for the annotation kubernetes.io/ingress.class without an IngressClass object.
	Class string
	// HTTPPort and HTTPSPort are opened on all addresses; 0 opens none.
	HTTPPort, HTTPSPort int
	// Ranges are the networks of Pods and Services. Addresses of nodes that are inside them are ignored.
	Ranges []netip.Prefix
	Views
	// Writer writes the status of Ingresses.
	Writer client.Writer
	// RecordEvent records a warning Event of an Ingress. May be nil.
	RecordEvent func(about kind.Object, reason, message string)
	Metrics     *httpproxy.Metrics // may be nil
	// Record stores how long it takes until the proxy follows a change of an Ingress. May be nil.
	Record func(hop.Record)
	// Answered is called when a new endpoint has answered, as in httpproxy.Config. May be nil.
	Answered func(endpoint netip.AddrPort, sent time.Time) bool
	// Connections bounds the clients of both ports; nil for no bound.
	Connections *connlimit.Budget
	// Listen opens a port of TCP, or takes over one that another process has open under a name; nil opens it.
	Listen func(name, address string) (net.Listener, error)
	// Synced is called when the proxy serves what the views have; may be nil.
	Synced func()
	// Drain counts what is in flight; may be nil.
	Drain *httpproxy.Drain
	Log   *slog.Logger
}

// Views are the resources that the controller reads. Of Nodes it reads the addresses.
type Views struct {
	Ingresses, Classes, Services, Slices, Secrets, Nodes client.View
}

func (v *Views) all() []client.View {
	return []client.View{v.Ingresses, v.Classes, v.Services, v.Slices, v.Secrets, v.Nodes}
}

// Server serves Ingresses.
type Server struct {
	Config
	proxy         *httpproxy.Proxy
	http, https   *portServer
	changes       *proxysync.Collector
	records       *proxysync.ProgramRecorder
	statusChanged wait.Signal

	// What follows is used by Run only.
	plan         plan
	pools        *proxysync.Pools
	certificates proxysync.Certificates
	reported     map[event]bool

	mu sync.Mutex // guards openPorts
	// openPorts are the open ports of each Ingress; nil for an Ingress that was served and is not any more.
	openPorts map[key][]int32
}

// event is an Event that has been recorded.
type event struct {
	uid             types.UID
	reason, message string
}

// New returns a server; Run starts it.
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
		c.Listen = func(_, address string) (net.Listener, error) { return net.Listen("tcp", address) }
	}
	if c.Synced == nil {
		c.Synced = func() {}
	}
	if c.RecordEvent == nil {
		c.RecordEvent = func(kind.Object, string, string) {}
	}
	s := &Server{
		Config: c, changes: proxysync.NewCollector(), statusChanged: wait.NewSignal(),
		records: proxysync.NewProgramRecorder(c.Record, c.NodeName),
		pools:   proxysync.NewPools(c.Services, c.Slices), reported: map[event]bool{},
	}
	s.proxy = httpproxy.NewProxy(httpproxy.Config{HTTPPort: c.HTTPPort, HTTPSPort: c.HTTPSPort, Metrics: c.Metrics, Answered: c.Answered,
		Drain: c.Drain, Log: c.Log})
	listen := func(name, address string) (net.Listener, error) {
		l, err := c.Listen(name, address)
		if err != nil {
			return nil, err
		}
		return c.Connections.Listener(l, "ingress", connlimit.Public), nil
	}
	s.http = &portServer{port: c.HTTPPort, listen: listen, proxy: s.proxy, onClose: s.changes.Wake, log: c.Log, backoff: newBackoff()}
	s.https = &portServer{port: c.HTTPSPort, secure: true, listen: listen, proxy: s.proxy, onClose: s.changes.Wake, log: c.Log,
		backoff: newBackoff()}
	return s, nil
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	for _, v := range s.all() {
		if err := v.Reach(ctx, 0); err != nil {
			return fmt.Errorf("read the resources of Ingresses: %w", err)
		}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer s.close(context.WithoutCancel(ctx))
	s.records.SkipPresent(Ingresses(), s.Ingresses)
	s.follow(ctx, &wg)
	wg.Go(func() { proxysync.KeepPublished(ctx, s.statusChanged, newBackoff(), s.publish) })
	s.changes.NoteAll()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.changes.Changed():
		case <-s.http.retryTime():
		case <-s.https.retryTime():
		}
		s.sync(ctx)
		s.Synced()
		if wait.Sleep(ctx, proxysync.Delay) != nil {
			return nil
		}
	}
}

func (s *Server) close(ctx context.Context) {
	var wg sync.WaitGroup
	for _, p := range []*portServer{s.http, s.https} {
		wg.Go(func() { p.close(ctx) })
	}
	wg.Wait()
	s.pools.Close()
}

// follow collects the changes of the views until ctx ends.
func (s *Server) follow(ctx context.Context, wg *sync.WaitGroup) {
	watch := func(v client.View, record func(*proxysync.Changes, client.Event)) {
		wg.Go(func() { s.changes.Follow(ctx, v, record) })
	}
	watch(s.Ingresses, func(c *proxysync.Changes, e client.Event) {
		c.All = c.All || e.Deleted || e.Old == nil || isChanged(e.Old, e.Object)
		s.records.Note(Ingresses(), e)
		s.statusChanged.Send()
	})
	watch(s.Classes, func(c *proxysync.Changes, _ client.Event) { c.All = true })
	watch(s.Services, proxysync.NoteService)
	watch(s.Secrets, proxysync.NoteSecret)
	watch(s.Slices, proxysync.NoteEndpoints)
	wg.Go(func() {
		for range s.Nodes.Events(ctx) {
			s.statusChanged.Send()
		}
	})
}

// isChanged reports whether an Ingress differs in more than its status.
func isChanged(old, now kind.Object) bool {
	return old.GetGeneration() != now.GetGeneration() || old.GetUID() != now.GetUID() ||
		(old.GetDeletionTimestamp() == nil) != (now.GetDeletionTimestamp() == nil) ||
		!maps.Equal(old.GetAnnotations(), now.GetAnnotations())
}

// sync configures the proxy after the changes since the last call, and opens or closes its ports.
func (s *Server) sync(ctx context.Context) {
	begin, c, recorded := time.Now(), s.changes.Take(), s.records.Take()
	if c.All || proxysync.Intersect(c.Services, s.plan.services) || proxysync.Intersect(c.Secrets, s.plan.secrets) {
		s.rebuild()
	} else {
		s.pools.Update(c.Endpoints)
	}
	s.openPortsOfPlan(ctx)
	s.records.Programmed(recorded, begin, s.isProgrammed)
}

// isProgrammed tells whether the proxy serves the Ingress of a record, and which of its ports is missing.
func (s *Server) isProgrammed(r *hop.Record) (bool, error) {
	for _, in := range s.plan.served {
		if in.UID != r.UID {
			continue
		}
		for _, p := range []*portServer{s.http, s.https} {
			if p.port != 0 && !p.isOpen() && (!p.secure || len(in.Spec.TLS) > 0) {
				return true, fmt.Errorf("port %d of the node cannot be opened", p.port)
			}
		}
		return true, nil
	}
	return false, nil
}

// rebuild makes a new routing table of all Ingresses.
func (s *Server) rebuild() {
	w := world{
		ownClass: s.Class, hasTLSPort: s.HTTPSPort != 0,
		class: func(name string) *networkingv1.IngressClass {
			return proxysync.Find[*networkingv1.IngressClass](s.Classes, key{Namespace: "", Name: name})
		},
		service: func(k key) *corev1.Service { return proxysync.Find[*corev1.Service](s.Services, k) },
		trusted: func(k key) (string, error) { return caCertificates(proxysync.Find[*corev1.Secret](s.Secrets, k)) },
	}
	for o := range s.Ingresses.List("") {
		if in, ok := o.(*networkingv1.Ingress); ok {
			w.ingresses = append(w.ingresses, in)
		}
	}
	old := s.plan
	s.plan = translate(w)
	table := httpproxy.NewTable(s.plan.rules, s.pools.Use)
	s.proxy.Swap(table, s.loadCertificates())
	s.pools.DropUnused()
	s.recordProblems()
	s.setOpenPorts(old.served)
}

// loadCertificates reads the certificates of the plan, by host.
func (s *Server) loadCertificates() map[string]*httpproxy.Certificate {
	out := map[string]*httpproxy.Certificate{}
	now := time.Now()
	for _, c := range s.plan.certs {
		complain := func(text string) {
			s.plan.problems = append(s.plan.problems, problem{c.about, badSecret, fmt.Sprintf("the Secret %s: %s", c.secret, text)})
		}
		secret := proxysync.Find[*corev1.Secret](s.Secrets, c.secret)
		if secret == nil {
			complain("there is none; clients get a certificate that says nothing")
			continue
		}
		cert, err := s.certificates.Load(secret)
		if err != nil {
			complain(err.Error() + "; clients get a certificate that says nothing")
			continue
		}
		if text := certificateWarning(cert, c.host, now); text != "" {
			complain(text)
		}
		out[c.host] = cert
	}
	s.certificates.DropUnused()
	return out
}

// recordProblems records an Event of every problem that the last plan did not have.
func (s *Server) recordProblems() {
	now := map[event]bool{}
	for _, p := range s.plan.problems {
		e := event{p.about.UID, p.reason, p.message}
		if !s.reported[e] && !now[e] {
			s.RecordEvent(p.about, p.reason, p.message)
			s.Log.Warn("an Ingress cannot be served as specified", "ingress", p.about.Namespace+"/"+p.about.Name, "reason", p.reason,
				"message", p.message)
		}
		now[e] = true
	}
	s.reported = now
}
