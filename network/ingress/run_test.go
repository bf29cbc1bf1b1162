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
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
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
	"proa.dev/internal/connlimit"
	"proa.dev/kinds/kind"
	"proa.dev/network/httpproxy"
	"proa.dev/network/nettest"
	"proa.dev/network/proxysync"
)

// fakeView is a view whose objects get resource versions, UIDs and generations as the server gives them.
type fakeView struct {
	*nettest.View
	mu      sync.Mutex // guards changes
	changes int
}

func newFakeView() *fakeView { return &fakeView{View: nettest.NewView()} }

func (v *fakeView) put(o kind.Object) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changes++
	o.SetResourceVersion(fmt.Sprint(v.changes))
	o.SetUID(types.UID(proxysync.KeyOf(o).String()))
	if old, ok := v.Get(o.GetNamespace(), o.GetName()); ok {
		o.SetGeneration(old.GetGeneration() + 1)
	}
	v.Put(o)
}

// fakeWriter keeps the statuses and Events that a server under test writes.
type fakeWriter struct {
	client.Writer
	ingresses *fakeView

	mu     sync.Mutex
	events []string
}

func (w *fakeWriter) Update(_ context.Context, _ schema.GroupResource, o kind.Object, sub string) (kind.Object, error) {
	if sub != "status" {
		return nil, errors.New("only the status is ours")
	}
	old, ok := w.ingresses.Get(o.GetNamespace(), o.GetName())
	if !ok {
		return nil, errors.New("there is none")
	}
	next := old.(*networkingv1.Ingress).DeepCopy()
	next.Status = o.(*networkingv1.Ingress).Status
	w.ingresses.put(next)
	return next, nil
}

func (w *fakeWriter) complain(about kind.Object, reason, _ string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, about.GetName()+" "+reason)
}

func (w *fakeWriter) count(text string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e == text {
			n++
		}
	}
	return n
}

// fixture is a server under test with the views that it reads.
type fixture struct {
	t                                                    *testing.T
	ingresses, classes, services, slices, secrets, nodes *fakeView
	writer                                               *fakeWriter
	server                                               *Server
	mu                                                   sync.Mutex
	ports                                                map[string]string // the real address of each port that was opened
}

// newFixture returns a server that also connects to endpoints on this machine, where those of tests are.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	b := newStrictFixture(t)
	b.server.pools.MayDial = func(netip.Addr) bool { return true }
	return b
}

// newStrictFixture returns a server as New makes it, which refuses endpoints on this machine.
func newStrictFixture(t *testing.T) *fixture {
	t.Helper()
	b := &fixture{t: t, ingresses: newFakeView(), classes: newFakeView(), services: newFakeView(), slices: newFakeView(),
		secrets: newFakeView(), nodes: newFakeView(), ports: map[string]string{}}
	b.writer = &fakeWriter{ingresses: b.ingresses}
	b.classes.put(&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "proa"},
		Spec: networkingv1.IngressClassSpec{Controller: Controller}})
	b.nodes.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}})
	var err error
	b.server, err = New(Config{
		NodeName: "here", Class: "proa", HTTPPort: 80, HTTPSPort: 443, Writer: b.writer, RecordEvent: b.writer.complain,
		Views: Views{Ingresses: b.ingresses, Classes: b.classes, Services: b.services, Slices: b.slices, Secrets: b.secrets,
			Nodes: b.nodes},
		Listen: b.listen, Connections: connlimit.New(64, slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// listen opens a free port of the loopback interface instead of the one that was asked for.
func (b *fixture) listen(_, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ports[address] = l.Addr().String()
	return l, nil
}

func (b *fixture) at(address string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ports[address]
}

func (b *fixture) start() {
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

// until waits for a condition, and fails the test after 20 seconds.
func (b *fixture) until(what string, ok func() bool) {
	b.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			b.t.Fatalf("timed out waiting for: %s", what)
		}
	}
}

func ingressOf(name, host, service string, tlsSecret string) *networkingv1.Ingress {
	prefix := networkingv1.PathTypePrefix
	in := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: networkingv1.IngressSpec{IngressClassName: new("proa")}}
	in.Spec.Rules = []networkingv1.IngressRule{{Host: host,
		IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
			Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix,
				Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: service,
					Port: networkingv1.ServiceBackendPort{Number: 80}}}}},
		}}}}
	if tlsSecret != "" {
		in.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{host}, SecretName: tlsSecret}}
	}
	return in
}

func serviceOf(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
}

func sliceOf(service, url string) *discoveryv1.EndpointSlice {
	at := netip.MustParseAddrPort(strings.TrimPrefix(url, "http://"))
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: service + "-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: service}},
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
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{
			corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}),
		}}
}

// ask requests the page of a host; it returns 0 if there is no answer.
func (b *fixture) ask(host string) (code int, body string) {
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

// offered returns the name in the certificate that a client gets.
func (b *fixture) offered(host string) string {
	c, err := tls.Dial("tcp", b.at(":443"), &tls.Config{ServerName: host, InsecureSkipVerify: true})
	if err != nil {
		return ""
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].DNSNames[0]
}

func (b *fixture) status(name string) string {
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

func (b *fixture) answers(host, want string) func() bool {
	return func() bool { _, body := b.ask(host); return body == want }
}

// TestRun follows a cluster in which Ingresses, Services, endpoints and Secrets are created, changed and deleted.
func TestRun(t *testing.T) {
	page := func(text string) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
		t.Cleanup(s.Close)
		return s
	}
	one, two := page("one"), page("two")
	b := newFixture(t)
	b.start()
	if b.at(":80") != "" {
		t.Error("a port is open, and nobody needs it")
	}
	// The Ingress comes first, then what it needs.
	b.ingresses.put(ingressOf("web", "a.example.com", "web", ""))
	b.until("a port is open", func() bool { return b.at(":80") != "" })
	b.until("its Service is missed", func() bool { return b.writer.count("web InvalidBackend") == 1 })
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
	b.until("its Secret is missed", func() bool { return b.writer.count("tls InvalidCertificate") == 1 })
	b.until("there is TLS nevertheless", func() bool { return b.offered("tls.example.com") == "fallback.invalid" })
	b.until("the status says both ports", func() bool { return b.status("tls") == "192.0.2.1 80 443" })
	b.secrets.put(secretOf(t, "cert", "tls.example.com"))
	b.until("the certificate is used", func() bool { return b.offered("tls.example.com") == "tls.example.com" })
	b.secrets.put(secretOf(t, "cert", "other.example.com"))
	b.until("the next one too", func() bool { return b.offered("tls.example.com") == "other.example.com" })
	b.until("but it is not for this host", func() bool { return b.writer.count("tls InvalidCertificate") == 2 })
	bad := secretOf(t, "cert", "x")
	bad.Data[corev1.TLSCertKey] = []byte("not PEM")
	b.secrets.put(bad)
	b.until("one that cannot be read is not used", func() bool { return b.offered("tls.example.com") == "fallback.invalid" })
	// What two want is the older one's.
	late := ingressOf("late", "a.example.com", "web", "")
	late.CreationTimestamp = metav1.Now()
	b.ingresses.put(late)
	b.until("it is told", func() bool { return b.writer.count("late Conflict") == 1 })
	// One that goes to another class is not ours any more.
	other := ingressOf("web", "a.example.com", "web", "")
	other.Spec.IngressClassName = new("other")
	other.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
	b.ingresses.put(other)
	b.until("its status is empty", func() bool { return b.status("web") == "" })
	b.until("the other one has the host", func() bool { return b.status("late") == "192.0.2.1 80" })
	// Ports are closed when nobody needs them.
	b.ingresses.Remove("default", "tls")
	b.until("no TLS", func() bool { return b.offered("tls.example.com") == "" })
	if _, body := b.ask("a.example.com"); body != "two" {
		t.Errorf("the other port: %q", body)
	}
	b.ingresses.Remove("default", "late")
	b.until("no port", func() bool { code, _ := b.ask("a.example.com"); return code == 0 })
	if n := b.writer.count("web InvalidBackend"); n != 1 {
		t.Errorf("the same was said %d times", n)
	}
}

// TestTakenPort checks that a port in use is retried with back-off, and that only the first failure is reported.
func TestTakenPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, taken := 0, true
		p := &portServer{port: 80, backoff: newBackoff(), proxy: httpproxy.NewProxy(httpproxy.Config{}), onClose: func() {},
			log: slog.New(slog.DiscardHandler), listen: func(_, address string) (net.Listener, error) {
				if tries++; taken {
					return nil, errors.New("listen tcp " + address + ": bind: address already in use")
				}
				return &silent{closed: make(chan struct{})}, nil
			}}
		if first, err := p.set(t.Context(), true); !first || err == nil || p.isOpen() {
			t.Fatal("the first failure is not reported")
		}
		for range 10 {
			_, _ = p.set(t.Context(), true) // whatever else happens, it waits
		}
		if tries != 1 {
			t.Errorf("%d tries at once", tries)
		}
		begin := time.Now()
		for range 6 {
			<-p.retryTime()
			if first, err := p.set(t.Context(), true); first || err == nil {
				t.Error("a later failure is reported again")
			}
		}
		if took := time.Since(begin); took != 61*time.Second { // 1+2+4+8+16+30
			t.Errorf("six more tries took %s", took)
		}
		taken = false
		<-p.retryTime()
		if _, err := p.set(t.Context(), true); err != nil || !p.isOpen() || p.retryTime() != nil {
			t.Error("it is not open when it could be")
		}
		p.close(t.Context())
	})
}

// silent is a listener without clients.
type silent struct {
	closed chan struct{}
	once   sync.Once
}

func (s *silent) Accept() (net.Conn, error) { <-s.closed; return nil, net.ErrClosed }
func (s *silent) Close() error              { s.once.Do(func() { close(s.closed) }); return nil }
func (s *silent) Addr() net.Addr            { return &net.TCPAddr{} }

// TestLoopbackEndpointsAreRefused checks that the proxy sends no request to an EndpointSlice with an address of the machine itself.
func TestLoopbackEndpointsAreRefused(t *testing.T) {
	b := newStrictFixture(t)
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
