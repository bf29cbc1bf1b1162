// Package firstanswer records when an endpoint of a Service on this node answers a client for the first time: the moment at which a Pod
// serves traffic. It listens for events of the kernel's connection tracking, but only while there are endpoints that have become ready and
// have not answered yet, for half a minute at most, so that connections cost nothing otherwise.
package firstanswer

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
	"proa.dev/internal/wait"
	"proa.dev/network/conntrack"
)

const (
	// patience is how long an endpoint that has become ready is expected to answer. Of later answers there is no record.
	patience = 30 * time.Second
	// maxExpected is how many Pods are expected to answer at a time, and maxOfNamespace how many of them are of one namespace. maxEndpoints
	// is how many endpoints of a Pod count.
	maxExpected, maxOfNamespace, maxEndpoints = 256, 64, 8
	// maxOpening is how many connections of an endpoint that are not answered yet are remembered with the time of their first packet.
	maxOpening = 16
	// maxAnswered is how many Pods are remembered that have answered, so that one that becomes ready again does not answer first again.
	maxAnswered = 4096
	// maxEvents is how many events in a second are read. On a node with more connections than that nothing is recorded for a while.
	maxEvents = 20_000
	// expiryPeriod is how often Pods that have not answered in time are forgotten, and localPeriod how often the addresses of the node are
	// read.
	expiryPeriod, localPeriod = 100 * time.Millisecond, 5 * time.Second
)

// Endpoint is an address at which a Pod of this node serves.
type Endpoint struct {
	Protocol uint8 // as in the IP header
	Addr     netip.AddrPort
}

// Config is what a Watcher needs.
type Config struct {
	// Record stores a record.
	Record func(hop.Record)
	Log    *slog.Logger
}

// events are the events of connections; *conntrack.Listener has them.
type events interface {
	Read(handle func(*conntrack.Flow)) (int, error)
	Close() error
}

// Watcher waits for the first answers of endpoints. Make one with New, and run it. A nil Watcher expects nothing.
type Watcher struct {
	Config
	listen    func() (events, error)
	addresses func() ([]net.Addr, error) // of this node
	wake      wait.Signal

	mu        sync.Mutex // guards what follows
	endpoints map[Endpoint]*target
	expected  map[pod]*expectation
	answered  map[pod]bool // what is not expected any more
	events    events       // open while something is expected
	isRunning bool
	idleUntil time.Time           // nothing is expected before, because there are too many connections or events cannot be read
	local     map[netip.Addr]bool // the addresses of this node
}

// pod is a Pod in an EndpointSlice, which the record is about.
type pod struct {
	slice types.UID
	name  string
}

// expectation is that a Pod will answer at one of several endpoints.
type expectation struct {
	pod
	record    hop.Record
	until     time.Time
	endpoints []Endpoint
}

// target is an endpoint that is expected to answer.
type target struct {
	waiting []*expectation // there are several if the Pod has several Services
	// opening has the time of the first packet of connections, by their clients.
	opening map[netip.AddrPort]time.Time
}

// New returns a watcher; nil if there is no function that stores records.
func New(c Config) *Watcher {
	if c.Record == nil {
		return nil
	}
	return &Watcher{
		Config: c, wake: wait.NewSignal(), endpoints: map[Endpoint]*target{}, expected: map[pod]*expectation{}, answered: map[pod]bool{},
		addresses: net.InterfaceAddrs,
		listen:    func() (events, error) { return conntrack.Listen() },
	}
}

// Expect says that a Pod of this node has just become ready at some endpoints. Its first answer at one of them completes the record, whose
// one step has the name of the Pod. Connections are seen from now on, so whoever makes the Pod reachable should call it before.
func (w *Watcher) Expect(record hop.Record, endpoints ...Endpoint) {
	if w == nil || len(endpoints) == 0 || len(record.Steps) == 0 {
		return
	}
	x := &expectation{pod: pod{record.UID, record.Steps[0].Name}, record: record, until: time.Now().Add(patience),
		endpoints: endpoints[:min(len(endpoints), maxEndpoints)]}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isRunning || time.Now().Before(w.idleUntil) || !w.hasRoom(x) || !w.open() {
		return
	}
	w.expected[x.pod] = x
	for _, e := range x.endpoints {
		t := w.endpoints[e]
		if t == nil {
			t = &target{opening: map[netip.AddrPort]time.Time{}}
			w.endpoints[e] = t
		}
		t.waiting = append(t.waiting, x)
	}
	w.wake.Send()
}

// hasRoom reports whether a Pod can be expected: it is not yet, it has not answered before, and there are not too many.
func (w *Watcher) hasRoom(x *expectation) bool {
	if w.expected[x.pod] != nil || w.answered[x.pod] || len(w.expected) >= maxExpected {
		return false
	}
	ofNamespace := 0
	for _, other := range w.expected {
		if other.record.Namespace == x.record.Namespace {
			ofNamespace++
		}
	}
	return ofNamespace < maxOfNamespace
}

// open opens the events, and reports whether they are open.
func (w *Watcher) open() bool {
	if w.events == nil {
		l, err := w.listen()
		if err != nil {
			w.Log.Debug("first answers of Pods are not recorded", "err", err)
			w.idleUntil = time.Now().Add(patience)
			return false
		}
		w.events = l
	}
	return true
}

// Answered says that an endpoint has answered a request that the HTTP proxy of this node sent to it at a certain time. The kernel does not
// tell such requests from the probes of the node. It reports whether the endpoint was expected to answer.
func (w *Watcher) Answered(addr netip.AddrPort, sent time.Time) bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	fulfilled := w.remove(Endpoint{unix.IPPROTO_TCP, addr})
	w.mu.Unlock()
	w.record(fulfilled, sent, time.Now(), "the HTTP proxy of the node")
	return len(fulfilled) > 0
}

// remove removes the Pods that are expected to answer at an endpoint, which has answered, and returns them.
func (w *Watcher) remove(e Endpoint) []*expectation {
	t := w.endpoints[e]
	if t == nil {
		return nil
	}
	all := t.waiting
	for _, x := range all {
		w.forget(x)
		if len(w.answered) >= maxAnswered {
			clear(w.answered)
		}
		w.answered[x.pod] = true
	}
	return all
}

// forget removes a Pod that is expected to answer.
func (w *Watcher) forget(x *expectation) {
	delete(w.expected, x.pod)
	for _, e := range x.endpoints {
		t := w.endpoints[e]
		if t == nil {
			continue
		}
		t.waiting = slices.DeleteFunc(slices.Clone(t.waiting), func(other *expectation) bool { return other == x })
		if len(t.waiting) == 0 {
			delete(w.endpoints, e)
		}
	}
}

// Run reads events until ctx ends. Before it runs nothing is expected.
func (w *Watcher) Run(ctx context.Context) {
	if w == nil {
		return
	}
	w.setRunning(true)
	defer w.setRunning(false)
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			w.read(ctx)
		}
	}
}

// read reads events until nothing is expected any more.
func (w *Watcher) read(ctx context.Context) {
	var expired, localRead time.Time
	second, count := time.Now(), 0
	for ctx.Err() == nil {
		if time.Since(expired) >= expiryPeriod {
			expired = time.Now()
			w.expire(expired)
		}
		l := w.current()
		if l == nil {
			return
		}
		if time.Since(localRead) >= localPeriod {
			localRead = time.Now()
			w.readLocal()
		}
		n, err := l.Read(w.handle)
		if time.Since(second) >= time.Second {
			second, count = time.Now(), 0
		}
		if count += n; err == nil && count > maxEvents {
			err = conntrack.ErrLost
		}
		if err != nil {
			w.Log.DebugContext(ctx, "first answers of Pods are not recorded for a while", "err", err)
			w.giveUp()
			return
		}
	}
}

// expire forgets the Pods that have not answered in time, and closes the events if there are no others.
func (w *Watcher) expire(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.expected {
		if now.After(x.until) {
			w.forget(x)
		}
	}
	if len(w.expected) == 0 {
		w.close()
	}
}

// current returns the events to read; nil if there is nothing to wait for.
func (w *Watcher) current() events {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events
}

// readLocal reads the addresses of this node. Without them a probe of the node may count as a client.
func (w *Watcher) readLocal() {
	list, err := w.addresses()
	if err != nil {
		w.Log.Debug("the addresses of the node cannot be read", "err", err)
		return
	}
	local := make(map[netip.Addr]bool, len(list))
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			local[p.Addr()] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.local = local
}

// giveUp expects nothing for a while.
func (w *Watcher) giveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clear()
	w.idleUntil = time.Now().Add(patience)
	w.close()
}

// setRunning says whether Run runs. What was expected before is forgotten.
func (w *Watcher) setRunning(isRunning bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isRunning = isRunning
	w.clear()
	w.close()
}

func (w *Watcher) clear() {
	clear(w.expected)
	clear(w.endpoints)
}

func (w *Watcher) close() {
	if w.events == nil {
		return
	}
	if err := w.events.Close(); err != nil {
		w.Log.Debug("events of connections cannot be closed", "err", err)
	}
	w.events = nil
}

// handle records the first answers that the event of a connection tells of.
func (w *Watcher) handle(f *conntrack.Flow) {
	now := time.Now()
	fulfilled, asked := w.take(f, now)
	through := ""
	if len(fulfilled) > 0 && f.Asked.To != f.Answered.From {
		through = f.Asked.To.String()
	}
	w.record(fulfilled, asked, now, through)
}

// take returns the expectations that a connection fulfils, and when its first packet came.
func (w *Watcher) take(f *conntrack.Flow, now time.Time) (fulfilled []*expectation, asked time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := Endpoint{f.Protocol, f.Answered.From}
	t := w.endpoints[e]
	if t == nil || w.isOfNode(f) {
		return nil, now
	}
	asked, known := t.opening[f.Asked.From]
	if !known {
		asked = now
	}
	if !f.IsAnswered() {
		if len(t.opening) >= maxOpening {
			clear(t.opening) // nobody has answered them so far
		}
		t.opening[f.Asked.From] = asked
		return nil, now
	}
	return w.remove(e), asked
}

// isOfNode reports whether a connection is one of the node itself to the address of the Pod, such as a probe. What the node sends to the
// address of a Service is not.
func (w *Watcher) isOfNode(f *conntrack.Flow) bool {
	return f.Asked.To == f.Answered.From && w.local[f.Asked.From.Addr()]
}

// record stores the records of expectations that are fulfilled.
func (w *Watcher) record(fulfilled []*expectation, asked, answered time.Time, through string) {
	for _, x := range fulfilled {
		r := x.record
		r.Verb, r.Start = hop.Answer, asked
		r.Took[hop.Network] = max(answered.Sub(asked), 0)
		r.Steps = slices.Clone(r.Steps)
		if r.Steps[0].Took = r.Took[hop.Network]; through != "" {
			r.Steps[0].Detail = "through " + through
		}
		w.Record(r)
	}
}
