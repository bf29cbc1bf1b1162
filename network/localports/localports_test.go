package localports

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"proa.dev/internal/connlimit"
	"proa.dev/kinds/lib/gr"
	"proa.dev/network/nettest"
)

// newService makes a Service; each port is NODEPORT:PORT/PROTOCOL.
func newService(name string, kind corev1.ServiceType, ip string, age time.Duration, ports ...string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(100000, 0).Add(-age))},
		Spec:       corev1.ServiceSpec{Type: kind, ClusterIP: ip},
	}
	for _, text := range ports {
		var p corev1.ServicePort
		numbers, protocol, _ := strings.Cut(text, "/")
		_, _ = fmt.Sscanf(numbers, "%d:%d", &p.NodePort, &p.Port)
		p.Protocol = corev1.Protocol(protocol)
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	return s
}

func TestDecide(t *testing.T) {
	assigned := newService("balanced", corev1.ServiceTypeLoadBalancer, "10.0.0.3", 0, "30003:80/TCP")
	assigned.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	assigned.Annotations = map[string]string{gr.LoadBalancerAnnotation: gr.LoadBalancerNodes}
	// Its address is only in its status, without the annotation of the balancer.
	claimed := newService("claimed", corev1.ServiceTypeLoadBalancer, "10.0.0.11", time.Hour, "30012:8081/TCP")
	claimed.Status = assigned.Status
	ranged := newService("ranged", corev1.ServiceTypeLoadBalancer, "10.0.0.12", 0, "30013:8082/TCP")
	ranged.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.7"}}
	younger := newService("younger", corev1.ServiceTypeLoadBalancer, "10.0.0.4", -time.Hour, "30004:80/TCP")
	younger.Status, younger.Annotations = assigned.Status, assigned.Annotations
	privileged := newService("privileged", corev1.ServiceTypeLoadBalancer, "10.0.0.9", 0, "30009:631/TCP",
		"30010:5432/TCP", "30011:443/TCP")
	privileged.Status, privileged.Annotations = assigned.Status, assigned.Annotations
	elsewhere := newService("elsewhere", corev1.ServiceTypeNodePort, "10.0.0.5", 0, "30005:80/TCP")
	elsewhere.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "other"}
	got := decide([]*corev1.Service{
		claimed, ranged,
		younger, assigned, elsewhere, privileged,
		newService("plain", corev1.ServiceTypeNodePort, "10.0.0.1", 0, "30001:80/TCP", "30002:53/UDP", "6443:443/TCP"),
		newService("waiting", corev1.ServiceTypeLoadBalancer, "10.0.0.6", 0, "30006:8080/TCP"),
		newService("headless", corev1.ServiceTypeNodePort, "None", 0, "30007:80/TCP"),
		newService("six", corev1.ServiceTypeNodePort, "fd00::1", 0, "30008:80/TCP"),
	}, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, []uint16{6443})
	var lines []string
	for _, n := range slices.Sorted(maps.Keys(got)) {
		lines = append(lines, fmt.Sprintf("%d=%s", n, got[n]))
	}
	want := "80=10.0.0.3:80 443=10.0.0.9:443 5432=10.0.0.9:5432 8082=10.0.0.12:8082 30001=10.0.0.1:80 30003=10.0.0.3:80 30004=10.0.0.4:80 30006=10.0.0.6:8080 30008=[fd00::1]:80 " +
		"30009=10.0.0.9:631 30010=10.0.0.9:5432 30011=10.0.0.9:443 30012=10.0.0.11:8081 30013=10.0.0.12:8082"
	if text := strings.Join(lines, " "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// startEcho starts a server that responds to each connection with its name and what it received, once the client has sent everything.
func startEcho(t *testing.T, name string) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				text, _ := io.ReadAll(c)
				_, _ = fmt.Fprintf(c, "%s got %s", name, text)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// requestText sends a text to a port and returns the response, or the error as a text.
func requestText(port int, text string) string {
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.3", strconv.Itoa(port)))
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	_, _ = io.WriteString(c, text)
	_ = c.(*net.TCPConn).CloseWrite()
	response, _ := io.ReadAll(c)
	return string(response)
}

// eventually waits up to 20 seconds until a condition is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// TestNodePortFollowsService has a Service whose cluster IP is a server of the test. The node port answers, follows a change of
// the Service, and is closed when the Service is deleted.
func TestNodePortFollowsService(t *testing.T) {
	first, second := startEcho(t, "first"), startEcho(t, "second")
	reserved, err := net.Listen("tcp", "127.0.0.3:0")
	if err != nil {
		t.Fatal(err)
	}
	nodePort := reserved.Addr().(*net.TCPAddr).Port
	view := nettest.NewView()
	put := func(target int) {
		view.Put(newService("web", corev1.ServiceTypeNodePort, "127.0.0.1", 0, fmt.Sprintf("%d:%d/TCP", nodePort, target)))
	}
	put(first)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	_ = reserved.Close()
	go func() {
		defer close(done)
		New(Config{Services: view, Addresses: []string{"127.0.0.3"}}).Run(ctx)
	}()
	eventually(t, "the node port answers", func() bool { return requestText(nodePort, "hello") == "first got hello" })
	put(second)
	eventually(t, "the node port leads to the new target", func() bool { return requestText(nodePort, "hello") == "second got hello" })
	view.Remove("default", "web")
	eventually(t, "the port is closed", func() bool { return strings.Contains(requestText(nodePort, ""), "refused") })
	put(first)
	eventually(t, "it answers again", func() bool { return requestText(nodePort, "x") == "first got x" })
	idle, err := net.Dial("tcp", net.JoinHostPort("127.0.0.3", strconv.Itoa(nodePort)))
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	stop()
	<-done // although a connection is open
	if response := requestText(nodePort, ""); !strings.Contains(response, "refused") {
		t.Errorf("after the forwarder has stopped, the port answers %q", response)
	}
}

// TestPortInUseIsNotForwarded checks that a port that a program uses on one address is not forwarded on any, and on all once it is free.
func TestPortInUseIsNotForwarded(t *testing.T) {
	otherProgram, err := net.Listen("tcp", "127.0.0.4:0")
	if err != nil {
		t.Fatal(err)
	}
	number := otherProgram.Addr().(*net.TCPAddr).Port
	f := New(Config{Services: nettest.NewView(), Addresses: []string{"127.0.0.3", "127.0.0.4", "192.0.2.1"}})
	if p := f.listen(uint16(number), "10.0.0.1:80"); p != nil {
		t.Errorf("a taken port is listened on at %d addresses", len(p.listeners))
	}
	if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.3", strconv.Itoa(number))); err != nil {
		t.Errorf("the other address is held: %v", err)
	} else {
		_ = l.Close()
	}
	_ = otherProgram.Close()
	p := f.listen(uint16(number), "10.0.0.1:80")
	if p == nil || len(p.listeners) != 2 { // the machine does not have the third address
		t.Fatalf("the port is free, and listened on as %+v", p)
	}
	p.close()
}

// failOnceListener fails once, as if there were no file descriptors left, and then accepts connections.
type failOnceListener struct {
	net.Listener
	failed bool
}

func (l *failOnceListener) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, syscall.EMFILE
	}
	return l.Listener.Accept()
}

// forwardPort starts a forwarder for one port of the address 127.0.0.3 that leads to the target.
func forwardPort(t *testing.T, target int) (number int, p *port) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.3:0")
	if err != nil {
		t.Fatal(err)
	}
	f := New(Config{Services: nettest.NewView()})
	p = &port{target: net.JoinHostPort("127.0.0.1", strconv.Itoa(target)), connections: make(chan struct{}, maxPortConnections)}
	ctx, stop := context.WithCancel(t.Context())
	budget := connlimit.New(64, slog.New(slog.DiscardHandler))
	var wg sync.WaitGroup
	wg.Go(func() {
		f.accept(ctx, &wg, budget.Listener(&failOnceListener{Listener: l}, "test", connlimit.Public), p)
	})
	t.Cleanup(func() {
		stop()
		wg.Wait()
		if len(f.connections) > 0 || len(p.connections) > 0 {
			t.Errorf("%d connections of the forwarder and %d of the port are left", len(f.connections), len(p.connections))
		}
	})
	return l.Addr().(*net.TCPAddr).Port, p
}

func TestAcceptsAgainAfterFailure(t *testing.T) {
	number, _ := forwardPort(t, startEcho(t, "server"))
	if got := requestText(number, "hello"); got != "server got hello" {
		t.Errorf("got %q", got)
	}
}

// TestBrokenConnectionsAreErrors has a server that resets a connection in the middle of its response, and a target where nothing listens.
// In both cases the client must see an error and not the end of a response.
func TestBrokenConnectionsAreErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	broken := l.Addr().(*net.TCPAddr).Port
	number, p := forwardPort(t, broken)
	read := func() error {
		c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.3", strconv.Itoa(number)))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = io.ReadAll(c)
		return err
	}
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.WriteString(c, "half")
			time.Sleep(10 * time.Millisecond)
			reset(c)
		}
	}()
	if err := read(); err == nil {
		t.Error("half of a response ends without an error")
	}
	_ = l.Close()
	p.setTarget(net.JoinHostPort("127.0.0.1", strconv.Itoa(broken)))
	if err := read(); err == nil {
		t.Error("a target that refuses connections looks like an empty response")
	}
}

// TestFullPortTakesNoSharedConnections checks that connections that wait at a full port do not count against the limit of all ports.
func TestFullPortTakesNoSharedConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.3:0")
	if err != nil {
		t.Fatal(err)
	}
	f := New(Config{Services: nettest.NewView()})
	p := &port{target: net.JoinHostPort("127.0.0.1", strconv.Itoa(startEcho(t, "server"))), connections: make(chan struct{}, 1)}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { f.accept(ctx, &wg, l, p) })
	defer wg.Wait()
	defer stop()
	for range 5 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	eventually(t, "one connection is served", func() bool { return len(f.connections) == 1 })
	time.Sleep(20 * time.Millisecond)
	if n := len(f.connections); n != 1 {
		t.Errorf("%d connections count for all ports, want 1", n)
	}
}

// TestPortOfTheAPIServerIsNotForwarded checks that no Service gets the port of the API server, even as its node port.
func TestPortOfTheAPIServerIsNotForwarded(t *testing.T) {
	reserved, err := net.Listen("tcp", "127.0.0.3:0")
	if err != nil {
		t.Fatal(err)
	}
	number := reserved.Addr().(*net.TCPAddr).Port
	_ = reserved.Close()
	view := nettest.NewView()
	server := newService("kubernetes", corev1.ServiceTypeClusterIP, "10.0.0.1", 0, "0:443/TCP")
	server.Spec.Ports[0].TargetPort = intstr.FromInt32(int32(number))
	view.Put(server)
	view.Put(newService("same-port", corev1.ServiceTypeNodePort, "10.0.0.2", 0, fmt.Sprintf("%d:80/TCP", number)))
	f := New(Config{Services: view, Addresses: []string{"127.0.0.3"}})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	f.sync(ctx, &wg)
	if len(f.open) > 0 {
		t.Errorf("port %d of the API server is taken", number)
	}
	stop()
	wg.Wait()
}
