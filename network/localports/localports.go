// Package localports makes node ports and load balancers answer on the loopback addresses of the machine: the rules of the kernel that
// package service writes do not see packets to 127.0.0.1 and ::1. For each TCP port it listens there, and sends what comes to the
// cluster IP of the Service, from where the rules lead on to a Pod. UDP ports are not served.
//
// Whoever may create Services thereby gets ports of the machine's loopback addresses, which a local program may want
// later. What that gives is bounded: node ports come from the range that the API server enforces, the ports of a load
// balancer count only once its controller has given it an address (a status alone is not trusted), of those below 1024,
// where local programs rely on root being the listener, only 80 and 443 are served, ports of the system itself
// (Reserved) never are, and a port that a program has on one of the addresses is left to it on all.
package localports

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/internal/connlimit"
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/network/service"
)

const (
	// maxConnections bounds the connections that are served at a time, maxPortConnections those of one port; further ones wait to be
	// accepted.
	maxConnections, maxPortConnections = 1000, 250
	// privilegedPorts are the ports below this number.
	privilegedPorts = 1024
	// dialTimeout is how long an endpoint may take to accept a connection.
	dialTimeout = 10 * time.Second
	// retryTaken is how often a port that another program has is tried again.
	retryTaken = 30 * time.Second
)

// Config says what is served. Services must be given.
type Config struct {
	Services client.View
	// Balancers are the networks whose addresses count as those of load balancers whoever has written the status of a Service.
	Balancers []netip.Prefix
	// Reserved are ports that are never listened on: those of the system itself.
	Reserved []uint16
	// Connections counts the connections of clients; nil counts none.
	Connections *connlimit.Budget
	Log         *slog.Logger
	// Addresses are the ones to listen on; 127.0.0.1 and ::1 if empty.
	Addresses []string
}

// Forwarder listens for the Services of a cluster on loopback addresses.
type Forwarder struct {
	Config
	changed     wait.Signal
	connections chan struct{} // holds one element for each connection
	open        map[uint16]*port
	retry       bool // a port was taken by another program
}

// port is a port that is listened on.
type port struct {
	listeners   []net.Listener
	connections chan struct{} // holds one element for each connection
	mu          sync.Mutex    // guards target
	target      string
}

// New returns a forwarder; Run starts it.
func New(c Config) *Forwarder {
	if len(c.Addresses) == 0 {
		c.Addresses = []string{"127.0.0.1", "::1"}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Forwarder{Config: c, changed: wait.NewSignal(), connections: make(chan struct{}, maxConnections), open: map[uint16]*port{}}
}

// Run keeps the listeners as the Services say until ctx ends, and then closes them and all connections.
func (f *Forwarder) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() {
		for ev := range f.Services.Events(ctx) {
			if ev.Gap || exposes(ev.Object) || exposes(ev.Old) {
				f.changed.Send()
			}
		}
	})
	defer func() {
		for _, p := range f.open {
			p.close()
		}
	}()
	for {
		f.sync(ctx, &wg)
		var again <-chan time.Time
		if f.retry {
			again = time.After(retryTaken)
		}
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		case <-again:
		}
	}
}

// exposes tells whether an object is a Service with ports outside of the cluster.
func exposes(o kind.Object) bool {
	s, ok := o.(*corev1.Service)
	return ok && s != nil && (s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer)
}

// sync opens and closes listeners until they are the wanted ones.
func (f *Forwarder) sync(ctx context.Context, wg *sync.WaitGroup) {
	want := decide(f.services(), f.Balancers, slices.Concat(f.Reserved, f.apiServerPorts()))
	for number, p := range f.open {
		if _, keep := want[number]; !keep {
			p.close()
			delete(f.open, number)
		}
	}
	f.retry = false
	for _, number := range slices.Sorted(maps.Keys(want)) {
		if p := f.open[number]; p != nil {
			p.setTarget(want[number])
			continue
		}
		p := f.listen(number, want[number])
		if p == nil {
			f.retry = true
			continue
		}
		f.open[number] = p
		for _, l := range p.listeners {
			wg.Go(func() { f.accept(ctx, wg, l, p) })
		}
	}
}

// listen opens a port on all addresses that the machine has. It returns nil when there is none, or when another program has the port on
// one of them: who says "localhost" means that program, on whichever address it listens.
func (f *Forwarder) listen(number uint16, target string) *port {
	p := &port{target: target, connections: make(chan struct{}, maxPortConnections)}
	for _, address := range f.Addresses {
		l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(int(number))))
		if err == nil {
			p.listeners = append(p.listeners, f.Connections.Listener(l, "localports", connlimit.Public))
			continue
		}
		f.Log.Debug("a port of a Service is not served on this address", "address", address, "port", number, "err", err)
		if errors.Is(err, syscall.EADDRINUSE) {
			p.close()
			return nil
		}
	}
	if len(p.listeners) == 0 {
		return nil
	}
	return p
}

// apiServerPorts returns the ports of the API servers, by the Service that leads to them. A server that starts again on this machine must
// find its port free.
func (f *Forwarder) apiServerPorts() (out []uint16) {
	for o := range f.Services.List(metav1.NamespaceDefault) {
		if s, ok := o.(*corev1.Service); ok && s.Name == "kubernetes" {
			for _, p := range s.Spec.Ports {
				out = append(out, uint16(p.TargetPort.IntValue()))
			}
		}
	}
	return out
}

func (f *Forwarder) services() (out []*corev1.Service) {
	for o := range f.Services.List("") {
		if s, ok := o.(*corev1.Service); ok && exposes(s) {
			out = append(out, s)
		}
	}
	return out
}

// decide returns the address and port behind each port that is to be listened on. Where two Services want the same port, a node port wins
// over the port of a load balancer, and then the older Service.
func decide(services []*corev1.Service, balancers []netip.Prefix, reserved []uint16) map[uint16]string {
	services = slices.Clone(services)
	slices.SortStableFunc(services, func(a, b *corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
	out := map[uint16]string{}
	add := func(number int32, target string) {
		if n := uint16(number); number > 0 && number < 1<<16 && out[n] == "" && !slices.Contains(reserved, n) {
			out[n] = target
		}
	}
	each := func(visit func(s *corev1.Service, p *corev1.ServicePort, target string)) {
		for _, s := range services {
			if service.IsForOtherProxy(s) || net.ParseIP(s.Spec.ClusterIP) == nil {
				continue
			}
			for i := range s.Spec.Ports {
				if p := &s.Spec.Ports[i]; p.Protocol == corev1.ProtocolTCP || p.Protocol == "" {
					visit(s, p, net.JoinHostPort(s.Spec.ClusterIP, strconv.Itoa(int(p.Port))))
				}
			}
		}
	}
	each(func(_ *corev1.Service, p *corev1.ServicePort, target string) { add(p.NodePort, target) })
	each(func(s *corev1.Service, p *corev1.ServicePort, target string) {
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer && hasBalancer(s, balancers) &&
			(p.Port >= privilegedPorts || p.Port == 80 || p.Port == 443) {
			add(p.Port, target)
		}
	})
	return out
}

// hasBalancer reports whether a Service has an address of a load balancer. A status alone is not trusted, because whoever may write it
// would get a port of the machine: the load balancer of the nodes must have assigned the address, or it must be in a network of the
// settings, as for the rules of package service.
func hasBalancer(s *corev1.Service, balancers []netip.Prefix) bool {
	byNodes := s.Annotations[gr.LoadBalancerAnnotation] == gr.LoadBalancerNodes
	return slices.ContainsFunc(s.Status.LoadBalancer.Ingress, func(in corev1.LoadBalancerIngress) bool {
		ip, err := netip.ParseAddr(in.IP)
		return err == nil && (byNodes || slices.ContainsFunc(balancers, func(p netip.Prefix) bool { return p.Contains(ip) }))
	})
}

func (p *port) setTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

func (p *port) close() {
	for _, l := range p.listeners {
		_ = l.Close() // connections go on
	}
}

// accept serves a listener until it is closed.
func (f *Forwarder) accept(ctx context.Context, wg *sync.WaitGroup, l net.Listener, p *port) {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		c, err := l.Accept()
		if err != nil {
			return // it was closed
		}
		for _, seats := range []chan struct{}{p.connections, f.connections} { // a port that is full must not hold what others could use
			select {
			case <-ctx.Done():
				_ = c.Close()
				return
			case seats <- struct{}{}:
			}
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		wg.Go(func() {
			defer func() {
				<-f.connections
				<-p.connections
			}()
			forward(ctx, c, target)
		})
	}
}

// forward copies between a connection and a new one to the target, until both directions have ended or ctx has. When one side breaks off
// or does not answer, the other is reset, so that nobody takes half of an answer for the whole.
func forward(ctx context.Context, in net.Conn, target string) {
	defer in.Close()
	dialer := net.Dialer{Timeout: dialTimeout}
	out, err := dialer.DialContext(ctx, "tcp", target)
	if err != nil {
		reset(in)
		return
	}
	defer out.Close()
	defer context.AfterFunc(ctx, func() {
		_ = in.Close()
		_ = out.Close()
	})()
	var wg sync.WaitGroup
	pump := func(to, from net.Conn) {
		if _, err := io.Copy(to, from); err != nil {
			reset(to)
			reset(from)
			return
		}
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
	wg.Go(func() { pump(out, in) })
	wg.Go(func() { pump(in, out) })
	wg.Wait()
}

// reset closes a connection so that the other end sees an error and not an end.
func reset(c net.Conn) {
	if tcp, ok := c.(interface{ SetLinger(seconds int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
