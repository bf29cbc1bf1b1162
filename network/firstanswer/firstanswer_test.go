package firstanswer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
	"proa.dev/network/conntrack"
)

// testEvents are events that a test sends.
type testEvents struct {
	flows  chan conntrack.Flow
	closed chan struct{}
}

func (e *testEvents) Read(handle func(*conntrack.Flow)) (int, error) {
	select {
	case f := <-e.flows:
		if f.Protocol == 255 {
			return 0, errors.New("the socket is broken")
		}
		handle(&f)
		return 1, nil
	case <-time.After(100 * time.Millisecond):
		return 0, nil
	}
}

func (e *testEvents) Close() error {
	close(e.closed)
	return nil
}

// testWatcher is a watcher whose events a test sends.
type testWatcher struct {
	*Watcher
	t       *testing.T
	records []string
	events  *testEvents // the newest
	opened  int
}

// runWatcher calls test with a watcher that runs, in virtual time. The node has the address 10.244.0.1.
func runWatcher(t *testing.T, test func(*testWatcher)) {
	synctest.Test(t, func(t *testing.T) {
		w := &testWatcher{t: t}
		start := time.Now()
		w.Watcher = New(Config{Log: slog.New(slog.DiscardHandler), Record: func(r hop.Record) {
			w.records = append(w.records, fmt.Sprintf("%s %s %s at %v took %v: %s %s", r.Verb, r.Name, r.UID, r.Start.Sub(start),
				r.Took[hop.Network], r.Steps[0].Name, r.Steps[0].Detail))
		}})
		w.addresses = func() ([]net.Addr, error) {
			return []net.Addr{&net.IPNet{IP: net.IPv4(10, 244, 0, 1), Mask: net.CIDRMask(24, 32)}}, nil
		}
		w.listen = func() (events, error) {
			w.opened++
			w.events = &testEvents{flows: make(chan conntrack.Flow), closed: make(chan struct{})}
			return w.events, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { w.Run(ctx) })
		synctest.Wait()
		test(w)
		cancel()
		wg.Wait()
		if w.Watcher.events != nil {
			t.Error("the events are not closed at the end")
		}
	})
}

// expect expects an answer of a Pod at TCP or UDP ports.
func (w *testWatcher) expect(slice, pod string, endpoints ...string) {
	var list []Endpoint
	for _, text := range endpoints {
		protocol, addr, _ := strings.Cut(text, "/")
		number := uint8(unix.IPPROTO_TCP)
		if protocol == "udp" {
			number = unix.IPPROTO_UDP
		}
		list = append(list, Endpoint{number, netip.MustParseAddrPort(addr)})
	}
	w.Expect(hop.Record{UID: types.UID("u-" + slice), Name: slice, Namespace: "d", Steps: []hop.Step{{Name: pod}}}, list...)
}

// see sends the event of a TCP connection, from a client to an address, which replies come from unless another one is given.
func (w *testWatcher) see(state uint8, from, to, replyFrom string) {
	w.t.Helper()
	if replyFrom == "" {
		replyFrom = to
	}
	client := netip.MustParseAddrPort(from)
	f := conntrack.Flow{Protocol: unix.IPPROTO_TCP, State: state,
		Asked:    conntrack.Ends{From: client, To: netip.MustParseAddrPort(to)},
		Answered: conntrack.Ends{From: netip.MustParseAddrPort(replyFrom), To: client}}
	select {
	case w.events.flows <- f:
	case <-w.events.closed:
		w.t.Error("nobody listens")
	}
	synctest.Wait()
}

// want fails the test unless these records were stored since the last call.
func (w *testWatcher) want(records ...string) {
	w.t.Helper()
	if got, want := strings.Join(w.records, "\n"), strings.Join(records, "\n"); got != want {
		w.t.Errorf("recorded\n%s\nwant\n%s", got, want)
	}
	w.records = nil
}

func (w *testWatcher) isListening() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Watcher.events != nil
}

// The states of TCP connections, as the kernel numbers them.
const sent, received, established, closed = 1, 2, 3, 8

func TestFirstAnswer(t *testing.T) {
	runWatcher(t, func(w *testWatcher) {
		w.expect("web-x", "web-1", "tcp/10.244.0.5:80", "tcp/10.244.0.5:443")
		w.expect("other-x", "web-1", "tcp/10.244.0.5:80")
		w.expect("web-x", "web-2", "tcp/10.244.0.6:80")
		time.Sleep(time.Second)
		w.see(sent, "10.244.0.9:40001", "10.96.0.7:8080", "10.244.0.5:80")
		time.Sleep(2 * time.Millisecond)
		w.see(received, "10.244.0.9:40001", "10.96.0.7:8080", "10.244.0.5:80")
		w.want()
		time.Sleep(time.Millisecond)
		w.see(established, "10.244.0.9:40001", "10.96.0.7:8080", "10.244.0.5:80")
		w.want("answer web-x u-web-x at 1s took 3ms: web-1 through 10.96.0.7:8080", "answer other-x u-other-x at 1s took 3ms: web-1 through 10.96.0.7:8080")
		// Not again, and not at another port of the same Pod.
		w.see(established, "10.244.0.9:40002", "10.96.0.7:8080", "10.244.0.5:80")
		w.see(established, "10.244.0.9:40003", "10.96.0.7:443", "10.244.0.5:443")
		w.want()
		// The other Pod, at its own address, by a client whose first packet was not seen.
		w.see(established, "10.244.0.9:40004", "10.244.0.6:80", "")
		w.want("answer web-x u-web-x at 1.003s took 0s: web-2 ")
		time.Sleep(time.Second)
		if w.isListening() {
			t.Error("it listens although everything has answered")
		}
		w.expect("web-x", "web-3", "tcp/10.244.0.7:80")
		w.see(established, "10.244.0.9:40004", "10.244.0.7:80", "")
		w.want("answer web-x u-web-x at 2.003s took 0s: web-3 ")
		if w.opened != 2 {
			t.Errorf("opened %d times", w.opened)
		}
	})
}

// TestWhatIsNoAnswer checks that connections of the node itself, such as probes, and connections that were refused do not count.
func TestWhatIsNoAnswer(t *testing.T) {
	runWatcher(t, func(w *testWatcher) {
		w.expect("web-x", "web-1", "tcp/10.244.0.5:80")
		w.see(sent, "10.244.0.1:50000", "10.244.0.5:80", "")
		w.see(established, "10.244.0.1:50000", "10.244.0.5:80", "") // a probe
		w.see(sent, "10.244.0.9:40001", "10.244.0.5:80", "")
		w.see(closed, "10.244.0.9:40001", "10.244.0.5:80", "")      // a reset
		w.see(established, "10.244.0.5:80", "10.244.0.9:40001", "") // the Pod as a client
		w.see(established, "10.244.0.9:40001", "10.244.0.5:81", "") // another port
		w.want()
		w.see(established, "10.244.0.1:50001", "10.96.0.7:80", "10.244.0.5:80") // the node as a client of the Service
		w.want("answer web-x u-web-x at 0s took 0s: web-1 through 10.96.0.7:80")
	})
}

func TestAnswersToTheHTTPProxy(t *testing.T) {
	runWatcher(t, func(w *testWatcher) {
		addr := netip.MustParseAddrPort("10.244.0.5:80")
		if w.Answered(addr, time.Now()) {
			t.Error("it was not expected")
		}
		w.expect("web-x", "web-1", "tcp/10.244.0.5:80")
		sent := time.Now()
		time.Sleep(time.Millisecond)
		if !w.Answered(addr, sent) || w.Answered(addr, sent) {
			t.Error("expected once")
		}
		w.want("answer web-x u-web-x at 0s took 1ms: web-1 through the HTTP proxy of the node")
	})
}

// TestBounds checks that nobody listens for long, and that many endpoints, connections and events cost little.
func TestBounds(t *testing.T) {
	runWatcher(t, func(w *testWatcher) {
		w.expect("web-x", "web-1", "tcp/10.244.0.5:80")
		time.Sleep(patience + time.Second)
		if w.isListening() || len(w.expected) != 0 {
			t.Error("it listens for longer than half a minute")
		}
		var ports []string
		for i := range maxEndpoints + 5 {
			ports = append(ports, fmt.Sprintf("tcp/10.244.0.5:%d", 1+i))
		}
		for i := range maxOfNamespace + 10 {
			w.expect("web-x", fmt.Sprintf("web-%d", i), ports...)
		}
		if pods, endpoints := len(w.expected), len(w.endpoints); pods != maxOfNamespace || endpoints != maxEndpoints {
			t.Errorf("%d Pods of a namespace and %d endpoints are expected", pods, endpoints)
		}
		for i := range 3 * maxOpening {
			w.see(sent, fmt.Sprintf("10.244.0.9:%d", 40000+i), "10.244.0.5:1", "")
		}
		if x := w.endpoints[Endpoint{unix.IPPROTO_TCP, netip.MustParseAddrPort("10.244.0.5:1")}]; len(x.opening) > maxOpening {
			t.Errorf("%d connections are remembered", len(x.opening))
		}
		for i := range maxExpected + 10 {
			w.Expect(hop.Record{Namespace: fmt.Sprint(i), UID: "v", Steps: []hop.Step{{Name: fmt.Sprint(i)}}},
				Endpoint{unix.IPPROTO_TCP, netip.MustParseAddrPort("10.244.0.6:1")})
		}
		if pods := len(w.expected); pods != maxExpected {
			t.Errorf("%d Pods are expected", pods)
		}
	})
}

// TestReadyAgain checks that a Pod that becomes ready again does not answer first again.
func TestReadyAgain(t *testing.T) {
	runWatcher(t, func(w *testWatcher) {
		for range 3 { // ready, not ready, ready
			w.expect("web-x", "web-1", "tcp/10.244.0.5:80")
		}
		w.see(established, "10.244.0.9:40004", "10.244.0.5:80", "")
		w.want("answer web-x u-web-x at 0s took 0s: web-1 ")
		time.Sleep(time.Second)
		w.expect("web-x", "web-1", "tcp/10.244.0.5:80")
		if w.isListening() {
			t.Error("it waits for another first answer")
		}
		for i := range 2 * maxAnswered { // what is remembered of them is bounded
			w.expect("web-x", fmt.Sprint("pod-", i), "tcp/10.244.0.5:80")
			w.Answered(netip.MustParseAddrPort("10.244.0.5:80"), time.Now())
		}
		if n := len(w.answered); n > maxAnswered {
			t.Errorf("%d Pods are remembered", n)
		}
		w.records = nil
	})
}

func TestTooManyConnections(t *testing.T) {
	runWatcher(t, func(w *testWatcher) {
		w.expect("web-x", "web-1", "tcp/10.244.0.5:80")
		synctest.Wait()
		events := w.events
		for i := range maxEvents + 1 {
			select {
			case events.flows <- conntrack.Flow{}:
			case <-events.closed:
				t.Fatalf("given up after %d events", i)
			}
		}
		synctest.Wait()
		if w.isListening() {
			t.Fatal("it listens in spite of too many events")
		}
		w.expect("web-x", "web-2", "tcp/10.244.0.6:80")
		if w.isListening() {
			t.Error("it listens again at once")
		}
		time.Sleep(patience + time.Second)
		w.expect("web-x", "web-3", "tcp/10.244.0.7:80")
		if !w.isListening() {
			t.Error("it never listens again")
		}
	})
}

func TestEventsThatCannotBeRead(t *testing.T) {
	runWatcher(t, func(w *testWatcher) {
		w.expect("web-x", "web-1", "tcp/10.244.0.5:80")
		synctest.Wait()
		w.events.flows <- conntrack.Flow{Protocol: 255}
		synctest.Wait()
		if w.isListening() || len(w.expected) != 0 {
			t.Error("it goes on")
		}
	})
	runWatcher(t, func(w *testWatcher) {
		w.listen = func() (events, error) { return nil, errors.New("not permitted") }
		w.expect("web-x", "web-1", "tcp/10.244.0.5:80")
		if len(w.expected) != 0 {
			t.Error("it expects what it cannot see")
		}
	})
}

func TestNobodyWantsRecords(t *testing.T) {
	w := New(Config{})
	w.Expect(hop.Record{}, Endpoint{})
	if w != nil || w.Answered(netip.AddrPort{}, time.Time{}) {
		t.Error("it records nothing")
	}
	w.Run(t.Context())
}
