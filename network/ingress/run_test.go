package ingress

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/network/route"
)

// shelf is a view of objects that a test puts there.
type shelf struct {
	mu      sync.Mutex
	objects map[key]kind.Object
	events  []client.Event
	changed chan struct{} // closed at every change
}

func newShelf() *shelf {
	return &shelf{objects: map[key]kind.Object{}, changed: make(chan struct{})}
}

func (s *shelf) put(o kind.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects[keyOf(o)]
	o.SetResourceVersion(fmt.Sprint(len(s.events) + 1))
	o.SetUID(types.UID(keyOf(o).String()))
	if old != nil {
		o.SetGeneration(old.GetGeneration() + 1)
	}
	s.objects[keyOf(o)] = o
	s.note(client.Event{Object: o, Old: old})
}

func (s *shelf) remove(k key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[k]
	delete(s.objects, k)
	s.note(client.Event{Object: o, Deleted: true})
}

func (s *shelf) note(e client.Event) {
	s.events = append(s.events, e)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *shelf) Get(namespace, name string) (kind.Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[key{namespace, name}]
	return o, ok
}

func (s *shelf) List(namespace string) iter.Seq[kind.Object] {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Values(s.objects))
	slices.SortFunc(all, func(a, b kind.Object) int { return strings.Compare(keyOf(a).String(), keyOf(b).String()) })
	return slices.Values(slices.DeleteFunc(all, func(o kind.Object) bool { return namespace != "" && o.GetNamespace() != namespace }))
}

func (s *shelf) By(index client.Index, value string) iter.Seq[kind.Object] {
	return func(yield func(kind.Object) bool) {
		for o := range s.List("") {
			if slices.Contains(index.Of(o), value) && !yield(o) {
				return
			}
		}
	}
}

func (s *shelf) Events(ctx context.Context) iter.Seq[client.Event] {
	return func(yield func(client.Event) bool) {
		for at := 0; ; {
			s.mu.Lock()
			news, changed := s.events[at:], s.changed
			s.mu.Unlock()
			for _, e := range news {
				if !yield(e) {
					return
				}
			}
			at += len(news)
			if len(news) > 0 {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	}
}

func (s *shelf) Reach(context.Context, int64) error { return nil }

// desk is where a server under test writes, and what it complains about.
type desk struct {
	client.Writer
	ingresses *shelf

	mu    sync.Mutex
	heard []string
}

func (d *desk) Update(_ context.Context, _ schema.GroupResource, o kind.Object, sub string) (kind.Object, error) {
	if sub != "status" {
		return nil, errors.New("only the status is ours")
	}
	old, ok := d.ingresses.Get(o.GetNamespace(), o.GetName())
	if !ok {
		return nil, errors.New("there is none")
	}
	next := old.(*networkingv1.Ingress).DeepCopy()
	next.Status = o.(*networkingv1.Ingress).Status
	d.ingresses.put(next)
	return next, nil
}

func (d *desk) complain(about kind.Object, reason, _ string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heard = append(d.heard, about.GetName()+" "+reason)
}

func (d *desk) count(text string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.heard {
		if h == text {
			n++
		}
	}
	return n
}

// bench is a server under test with what it sees.
type bench struct {
	t                                                    *testing.T
	ingresses, classes, services, slices, secrets, nodes *shelf
	desk                                                 *desk
	server                                               *Server
	mu                                                   sync.Mutex
	ports                                                map[string]string // where the ports are that were opened
}

// newBench makes a server that also asks endpoints on this machine, where those of tests are.
func newBench(t *testing.T) *bench {
	t.Helper()
	b := newStrictBench(t)
	b.server.reachable = func(netip.Addr) bool { return true }
	return b
}

// newStrictBench makes a server as New makes it.
func newStrictBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, ingresses: newShelf(), classes: newShelf(), services: newShelf(), slices: newShelf(), secrets: newShelf(), nodes: newShelf(), ports: map[string]string{}}
	b.desk = &desk{ingresses: b.ingresses}
	b.classes.put(&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "proa"}, Spec: networkingv1.IngressClassSpec{Controller: Controller}})
	b.nodes.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}})
	var err error
	b.server, err = New(Config{
		NodeName: "here", Class: "proa", HTTPPort: 80, HTTPSPort: 443, Writer: b.desk, Complain: b.desk.complain,
		Views:  Views{Ingresses: b.ingresses, Classes: b.classes, Services: b.services, Slices: b.slices, Secrets: b.secrets, Nodes: b.nodes},
		Listen: b.listen,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// listen opens some port in the place of the one that is meant.
func (b *bench) listen(_, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ports[address] = l.Addr().String()
	return l, nil
}

func (b *bench) at(address string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ports[address]
}

func (b *bench) start() {
	ctx, stop := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- b.server.Run(ctx) }()
	b.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	})
}

// until waits for what must come.
func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			b.t.Fatalf("it does not come to this: %s", what)
		}
	}
}

func ingressOf(name, host, service string, tlsSecret string) *networkingv1.Ingress {
	prefix := networkingv1.PathTypePrefix
	in := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: networkingv1.IngressSpec{IngressClassName: new("proa")}}
	in.Spec.Rules = []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
		Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: service, Port: networkingv1.ServiceBackendPort{Number: 80}}}}},
	}}}}
	if tlsSecret != "" {
		in.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{host}, SecretName: tlsSecret}}
	}
	return in
}

func serviceOf(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
}

func sliceOf(service, url string) *discoveryv1.EndpointSlice {
	at := netip.MustParseAddrPort(strings.TrimPrefix(url, "http://"))
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(at.Port()))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{at.Addr().String()}}},
	}
}

func secretOf(t *testing.T, name, host string) *corev1.Secret {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}),
	}}
}

// ask gets the page of a host; empty if there is no answer.
func (b *bench) ask(host string) (code int, body string) {
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, "http://"+b.at(":80"), nil)
	if err != nil {
		return 0, ""
	}
	r.Host = host
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(r)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// offered is the name in the certificate that a client gets.
func (b *bench) offered(host string) string {
	c, err := tls.Dial("tcp", b.at(":443"), &tls.Config{ServerName: host, InsecureSkipVerify: true})
	if err != nil {
		return ""
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].DNSNames[0]
}

func (b *bench) status(name string) string {
	o, _ := b.ingresses.Get("default", name)
	in, ok := o.(*networkingv1.Ingress)
	if !ok {
		return "gone"
	}
	var out bytes.Buffer
	for _, e := range in.Status.LoadBalancer.Ingress {
		fmt.Fprint(&out, e.IP)
		for _, p := range e.Ports {
			fmt.Fprintf(&out, " %d", p.Port)
		}
	}
	return out.String()
}

func (b *bench) answers(host, want string) func() bool {
	return func() bool { _, body := b.ask(host); return body == want }
}

// TestRun follows a cluster: Ingresses, Services, endpoints and Secrets come, change and go.
func TestRun(t *testing.T) {
	page := func(text string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
		t.Cleanup(s.Close)
		return s
	}
	one, two := page("one"), page("two")
	b := newBench(t)
	b.start()
	if b.at(":80") != "" {
		t.Error("a port is open, and nobody needs it")
	}
	// The Ingress comes first, then what it needs.
	b.ingresses.put(ingressOf("web", "a.example.com", "web", ""))
	b.until("a port is open", func() bool { return b.at(":80") != "" })
	b.until("its Service is missed", func() bool { return b.desk.count("web InvalidBackend") == 1 })
	b.until("503 without a Service", func() bool { code, _ := b.ask("a.example.com"); return code == 503 })
	b.services.put(serviceOf("web"))
	b.slices.put(sliceOf("web", one.URL))
	b.until("the page is served", b.answers("a.example.com", "one"))
	b.until("the status says where", func() bool { return b.status("web") == "192.0.2.1 80" })
	b.slices.put(sliceOf("web", two.URL))
	b.until("the next endpoint is asked", b.answers("a.example.com", "two"))
	if b.at(":443") != "" {
		t.Error("the port for TLS is open, and nobody needs it")
	}
	// TLS, with a Secret that comes later and changes.
	b.ingresses.put(ingressOf("tls", "tls.example.com", "web", "cert"))
	b.until("its Secret is missed", func() bool { return b.desk.count("tls InvalidCertificate") == 1 })
	b.until("there is TLS nevertheless", func() bool { return b.offered("tls.example.com") == "fallback.invalid" })
	b.until("the status says both ports", func() bool { return b.status("tls") == "192.0.2.1 80 443" })
	b.secrets.put(secretOf(t, "cert", "tls.example.com"))
	b.until("the certificate is used", func() bool { return b.offered("tls.example.com") == "tls.example.com" })
	b.secrets.put(secretOf(t, "cert", "other.example.com"))
	b.until("the next one too", func() bool { return b.offered("tls.example.com") == "other.example.com" })
	b.until("but it is not for this host", func() bool { return b.desk.count("tls InvalidCertificate") == 2 })
	bad := secretOf(t, "cert", "x")
	bad.Data[corev1.TLSCertKey] = []byte("not PEM")
	b.secrets.put(bad)
	b.until("one that cannot be read is not used", func() bool { return b.offered("tls.example.com") == "fallback.invalid" })
	// What two want is the older one's.
	late := ingressOf("late", "a.example.com", "web", "")
	late.CreationTimestamp = metav1.Now()
	b.ingresses.put(late)
	b.until("it is told", func() bool { return b.desk.count("late Conflict") == 1 })
	// One that goes to another class is not ours any more.
	other := ingressOf("web", "a.example.com", "web", "")
	other.Spec.IngressClassName = new("other")
	other.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
	b.ingresses.put(other)
	b.until("its status is empty", func() bool { return b.status("web") == "" })
	b.until("the other one has the host", func() bool { return b.status("late") == "192.0.2.1 80" })
	// Ports are closed when nobody needs them.
	b.ingresses.remove(key{"default", "tls"})
	b.until("no TLS", func() bool { return b.offered("tls.example.com") == "" })
	if _, body := b.ask("a.example.com"); body != "two" {
		t.Errorf("the other port: %q", body)
	}
	b.ingresses.remove(key{"default", "late"})
	b.until("no port", func() bool { code, _ := b.ask("a.example.com"); return code == 0 })
	if n := b.desk.count("web InvalidBackend"); n != 1 {
		t.Errorf("the same was said %d times", n)
	}
}

// TestTakenPort holds that a port that others have is tried again, and told once.
func TestTakenPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, taken := 0, true
		d := &door{port: 80, pause: firstPause, proxy: route.NewProxy(route.Config{}), lost: func() {}, log: slog.New(slog.DiscardHandler), listen: func(_, address string) (net.Listener, error) {
			if tries++; taken {
				return nil, errors.New("listen tcp " + address + ": bind: address already in use")
			}
			return &silent{closed: make(chan struct{})}, nil
		}}
		if first, err := d.set(t.Context(), true); !first || err == nil || d.open() {
			t.Fatal("the first failure is not told")
		}
		for range 10 {
			_, _ = d.set(t.Context(), true) // whatever else happens, it waits
		}
		if tries != 1 {
			t.Errorf("%d tries at once", tries)
		}
		begin := time.Now()
		for range 6 {
			<-d.again()
			if first, err := d.set(t.Context(), true); first || err == nil {
				t.Error("a later failure is told again")
			}
		}
		if took := time.Since(begin); took != 61*time.Second { // 1+2+4+8+16+30
			t.Errorf("six more tries took %s", took)
		}
		taken = false
		<-d.again()
		if _, err := d.set(t.Context(), true); err != nil || !d.open() || d.again() != nil {
			t.Error("it is not open when it could be")
		}
		d.close(t.Context())
	})
}

// silent is a listener to which nobody comes.
type silent struct {
	closed chan struct{}
	once   sync.Once
}

func (s *silent) Accept() (net.Conn, error) { <-s.closed; return nil, net.ErrClosed }
func (s *silent) Close() error              { s.once.Do(func() { close(s.closed) }); return nil }
func (s *silent) Addr() net.Addr            { return &net.TCPAddr{} }

// TestEndpointsOnTheMachineAreNotAsked has a slice with an address of the machine itself come past the API: a server as it is made
// sends no request there.
func TestEndpointsOnTheMachineAreNotAsked(t *testing.T) {
	b := newStrictBench(t)
	var asked atomic.Int32
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer backend.Close()
	b.services.put(serviceOf("web"))
	b.slices.put(sliceOf("web", backend.URL))
	b.ingresses.put(ingressOf("a", "a.example", "web", ""))
	b.start()
	b.until("the Ingress is served, by nobody", func() bool { code, _ := b.ask("a.example"); return code == http.StatusServiceUnavailable })
	if n := asked.Load(); n > 0 {
		t.Errorf("the machine itself was asked %d times", n)
	}
}

// Unreadable is nothing: whatever a test puts there can be read.
func (s *shelf) Unreadable(string) []string { return nil }
