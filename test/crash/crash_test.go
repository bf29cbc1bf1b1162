// Package crash kills the built proa with SIGKILL while many clients write, again and again on one data folder, and checks that
// every acknowledged write is stored, that revisions never go back, and that a resumed watch misses no event and gets none twice.
package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	clients = 32
	writes  = 1000 // in a round
)

// killCount returns how often a test kills the server: PROA_CRASH_KILLS, or otherwise if that is not set.
func killCount(t *testing.T, otherwise int) int {
	t.Helper()
	s := os.Getenv("PROA_CRASH_KILLS")
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("PROA_CRASH_KILLS: %v", err)
	}
	return n
}

func TestKill(t *testing.T) {
	c := newCluster(t)
	c.start()
	createNamespace(c)
	began := time.Now()
	m := &clusterModel{T: t}
	for range clients {
		m.writers = append(m.writers, &writer{cluster: c, objects: map[string]*object{}, first: len(m.writers)})
	}
	seen := &watchHistory{cluster: c, after: c.list().revision}
	for round := range killCount(t, 20) {
		follow := seen.follow()
		acked, inFlight := m.write(round)
		follow() // the watch ended because the server was killed
		c.start()
		listed := m.check(seen.after)
		marker := m.writeMarker(round)
		seen.until(marker)
		seen.compare(c.list())
		t.Logf("round %d: killed after %d acknowledged writes with %d under way; back in %v with %d objects at revision %d; %d events seen",
			round, acked, inFlight, c.starts[len(c.starts)-1].Round(time.Millisecond), len(listed.objects), marker, len(seen.events))
		if t.Failed() {
			return
		}
	}
	m.compare(seen)
	total, unknown, happened := m.count()
	slices.Sort(c.starts)
	t.Logf("%d acknowledged writes checked; of %d without answer %d happened; %d events; start takes %v, at most %v; %v in all",
		total, unknown, happened, len(seen.events), c.starts[len(c.starts)/2].Round(time.Millisecond),
		c.starts[len(c.starts)-1].Round(time.Millisecond),
		time.Since(began).Round(time.Second))
}

// clusterModel is what the clients know about the state of the cluster from the answers that they got.
type clusterModel struct {
	*testing.T
	writers     []*writer
	maxRevision int64 // the highest revision in an answer
}

// object is what the one client that writes it knows about an object: the acknowledged state, and the pending write. Its value
// counts its versions from one; zero means that it does not exist.
type object struct {
	value    int
	revision int64 // zero if the value is only known from a list
	pending  string
	acks     []ack
	unknown  int
	happened int
}

// ack is an acknowledged write: value is zero for a deletion, whose answer has no revision.
type ack struct {
	value    int
	revision int64
}

// writer is one client.
type writer struct {
	*cluster
	objects map[string]*object
	names   []string // of the objects that exist
	first   int
}

// write lets all clients write until the server is killed at a random moment.
func (m *clusterModel) write(round int) (acked, inFlight int64) {
	m.Helper()
	var killed atomic.Bool
	var acks, under, started atomic.Int64
	deadline := int64(50 + rand.IntN(writes-100))
	kill := make(chan struct{})
	var wg sync.WaitGroup
	for _, w := range m.writers {
		wg.Go(func() {
			client := w.client()
			defer client.CloseIdleConnections()
			for i := 0; started.Add(1) <= writes; i++ {
				name, verb := w.choose(round, i)
				under.Add(1)
				err := w.apply(client, name, verb)
				if err != nil {
					if !killed.Load() {
						m.Errorf("%s %s: %v, but the server was not killed yet", verb, name, err)
					}
					return
				}
				under.Add(-1)
				if acks.Add(1) == deadline {
					close(kill)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-kill:
	case <-done: // only reached if writes have failed
	}
	inFlight = under.Load()
	killed.Store(true)
	m.writers[0].kill()
	<-done
	for _, w := range m.writers {
		for _, o := range w.objects {
			m.maxRevision = max(m.maxRevision, o.revision)
		}
	}
	return acks.Load(), inFlight
}

// choose picks the next write: half of the writes create a new object.
func (w *writer) choose(round, i int) (name, verb string) {
	n := rand.IntN(10)
	if n < 5 || len(w.names) == 0 {
		return fmt.Sprintf("c%d-%d-%d", w.first, round, i), "create"
	}
	at := rand.IntN(len(w.names))
	if n < 8 {
		return w.names[at], "update"
	}
	name = w.names[at]
	w.names = slices.Delete(w.names, at, at+1)
	return name, "delete"
}

// check compares the stored state with the acknowledged writes, and adopts the result of writes without an answer. No revision that
// a writer got, or that the watch got (watched is its last one), may be higher than that of the server.
func (m *clusterModel) check(watched int64) *listing {
	m.Helper()
	m.maxRevision = max(m.maxRevision, watched)
	got := m.writers[0].list()
	if got.revision < m.maxRevision {
		m.Errorf("the server is at revision %d after it has sent %d", got.revision, m.maxRevision)
	}
	known := 0
	for _, w := range m.writers {
		w.names = w.names[:0]
		for name, o := range w.objects {
			m.checkObject(name, o, got)
			if o.value > 0 {
				w.names = append(w.names, name)
				known++
			}
		}
		slices.Sort(w.names)
	}
	if known != len(got.objects) {
		m.Errorf("there are %d objects, and the clients know of %d", len(got.objects), known)
	}
	return got
}

// checkObject checks one object.
func (m *clusterModel) checkObject(name string, o *object, got *listing) {
	m.Helper()
	is := got.objects[name]
	wanted := map[string]int{"": -1, "create": 1, "update": o.value + 1, "delete": 0}[o.pending]
	switch {
	case is.value == o.value && (o.revision == 0 || is.value == 0 || is.revision == o.revision):
	case o.pending != "" && is.value == wanted:
		o.happened++
		o.value, o.revision = is.value, 0
	default:
		m.Errorf("%s: version %d was acknowledged at %d, and %q not; the server has version %d at %d",
			name, o.value, o.revision, o.pending, is.value, is.revision)
	}
	o.pending = ""
	m.maxRevision = max(m.maxRevision, is.revision)
}

// writeMarker makes the first write after a restart, whose revision must be higher than all before.
func (m *clusterModel) writeMarker(round int) int64 {
	m.Helper()
	w := m.writers[0]
	client := w.client()
	defer client.CloseIdleConnections()
	name := fmt.Sprintf("marker-%d", round)
	if err := w.apply(client, name, "create"); err != nil {
		m.Fatalf("the first write after the restart: %v", err)
	}
	rev := w.objects[name].revision
	if rev <= m.maxRevision {
		m.Errorf("a new write has revision %d, and an old one %d", rev, m.maxRevision)
	}
	m.maxRevision = rev
	return rev
}

// compare checks that the watch got an event for every acknowledged write.
func (m *clusterModel) compare(h *watchHistory) {
	m.Helper()
	type version struct {
		name  string
		value int
	}
	seen := map[version]int64{}
	for _, e := range h.events {
		seen[version{e.name, e.value}] = e.revision
	}
	for _, w := range m.writers {
		for name, o := range w.objects {
			for _, a := range o.acks {
				if rev, found := seen[version{name, a.value}]; !found || (a.value > 0 && rev != a.revision) {
					m.Errorf("%s: version %d was acknowledged at %d; the watch saw it at %d", name, a.value, a.revision, rev)
				}
			}
		}
	}
}

func (m *clusterModel) count() (acked, unknown, happened int) {
	for _, w := range m.writers {
		for _, o := range w.objects {
			acked += len(o.acks)
			unknown += o.unknown
			happened += o.happened
		}
	}
	return acked, unknown, happened
}
