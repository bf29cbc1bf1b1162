package crash

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestResumeUnderLoad kills the server again and again while clients write and watch. All clients reconnect by themselves. Watches
// are also ended and resumed in between, after the last event or at the revision of the client's own write. No watch misses an
// event, gets one twice or gets one out of order. PROA_CRASH_KILLS is how often the server is killed.
func TestResumeUnderLoad(t *testing.T) {
	c := newCluster(t)
	c.start()
	createNamespace(c)
	l := &load{cluster: c}
	l.ctx, l.stop = context.WithCancel(t.Context())
	defer l.stop()
	begin := c.list().revision
	watchers := make([]*resumingWatch, 5)
	var writing, watching sync.WaitGroup
	for i := range watchers {
		watchers[i] = &resumingWatch{load: l, watchHistory: &watchHistory{cluster: c, after: begin}}
		watching.Go(watchers[i].run)
	}
	writers := make([]*persistentWriter, 8)
	for i := range writers {
		writers[i] = &persistentWriter{load: l, client: c.client()}
		for n := range 3 {
			writers[i].objects = append(writers[i].objects, &writtenObject{name: fmt.Sprintf("w%d-%d", i, n)})
		}
		writing.Go(writers[i].run)
	}
	for kill := range killCount(t, 6) {
		time.Sleep(50*time.Millisecond + rand.N(250*time.Millisecond)) // the load under which the server is killed
		l.setDown()
		c.kill()
		c.start()
		l.setUp()
		if kill%50 == 49 {
			t.Logf("%d kills: %s", kill+1, l)
		}
		if t.Failed() {
			break
		}
	}
	l.stop()
	writing.Wait()
	last := writers[0].writeMarker()
	l.last.Store(last)
	watching.Wait()
	l.compare(watchers, writers)
	slices.Sort(c.starts)
	t.Logf("%s; %d events seen by each of %d watches; start takes %v, at most %v", l, len(watchers[0].events), len(watchers),
		c.starts[len(c.starts)/2].Round(time.Millisecond), c.starts[len(c.starts)-1].Round(time.Millisecond))
}

// load is shared by the clients that write and watch while the server is killed.
type load struct {
	*cluster
	ctx  context.Context // until when clients write
	stop context.CancelFunc
	// last is the revision up to which watches go on; zero while clients write.
	last atomic.Int64

	acked, unknown, happened atomic.Int64 // writes
	resumed, ownResumed      atomic.Int64 // watches that resumed after the last event, and at the revision of a write

	mu   sync.Mutex // guards what follows
	down bool       // the server is being killed, or is not ready again
	life int        // how often it was killed
}

func (l *load) String() string {
	return fmt.Sprintf("%d acknowledged writes; of %d without answer %d happened; %d watches resumed after the last event, %d at a write of their own",
		l.acked.Load(), l.unknown.Load(), l.happened.Load(), l.resumed.Load(), l.ownResumed.Load())
}

func (l *load) setDown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	l.life++
}

func (l *load) setUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// startRequest is called before a request; explainedByKill reports afterwards whether a kill of the server may be the cause of its
// failure.
func (l *load) startRequest() (explainedByKill func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	down, life := l.down, l.life
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return down || l.down || l.life != life
	}
}

// pause waits a moment before the next attempt to reach another process, which can only be polled.
func pause() { time.Sleep(5 * time.Millisecond) }

// resumingWatch is a watch of all objects that is ended and resumed again and again.
type resumingWatch struct {
	*watchHistory
	load *load
}

// run watches until the last revision.
func (r *resumingWatch) run() {
	client := r.client()
	defer client.CloseIdleConnections()
	for !r.Failed() {
		last := r.load.last.Load()
		if last > 0 && r.after >= last {
			return
		}
		explainedByKill := r.load.startRequest()
		err := r.watch(client, 1+rand.IntN(400))
		if errors.As(err, new(*brokenWatch)) || err != nil && !explainedByKill() {
			r.Errorf("watch after %d: %v", r.after, err)
			return
		}
		if err != nil {
			pause()
		}
		r.load.resumed.Add(1)
	}
}

// brokenWatch is an error of a watch that is not caused by a kill.
type brokenWatch struct{ error }

// watch resumes after the last event, and reads at most this number of events.
func (r *resumingWatch) watch(client *http.Client, events int) error {
	ctx, stop := context.WithTimeout(r.Context(), 30*time.Second)
	defer stop()
	return r.watchEvents(ctx, client, r.after, func(kind string, text []byte) (bool, error) {
		if err := r.take(kind, text); err != nil {
			return false, &brokenWatch{err}
		}
		events--
		last := r.load.last.Load()
		return events > 0 && (last == 0 || r.after < last), nil
	})
}

// watchEvents watches all objects after a revision until the callback returns false. A connection that breaks is an error.
func (c *cluster) watchEvents(ctx context.Context, client *http.Client, after int64,
	each func(kind string, object []byte) (more bool, err error)) error {
	path := fmt.Sprintf("%s%s?watch=1&labelSelector=crash&timeoutSeconds=2&resourceVersion=%d", c.base, collection, after)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("resume after %d: %s", after, res.Status)
	}
	for dec, more := json.NewDecoder(res.Body), true; more; {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := dec.Decode(&e); err != nil {
			return nil // the server was killed, or two seconds are over; a truncated event will be sent again
		}
		if more, err = each(e.Type, e.Object); err != nil {
			return err
		}
	}
	return nil
}

// writtenObject is an object that one writer creates, changes and deletes. Its value grows with each write.
type writtenObject struct {
	name   string
	value  int // the last one that is known to be stored
	exists bool
	acks   []ack // of writes whose answer had a revision
}

// persistentWriter is a client that keeps writing while the server is killed.
type persistentWriter struct {
	*load
	client  *http.Client
	objects []*writtenObject
}

func (w *persistentWriter) run() {
	defer w.client.CloseIdleConnections()
	for w.ctx.Err() == nil && !w.Failed() {
		o := w.objects[rand.IntN(len(w.objects))]
		explainedByKill := w.startRequest()
		rev, err := w.write(o)
		if err != nil {
			if !explainedByKill() {
				w.Errorf("write %s: %v", o.name, err)
				return
			}
			w.unknown.Add(1)
			w.recover(o)
			continue
		}
		w.acked.Add(1)
		if rev > 0 && rand.IntN(4) == 0 {
			w.watchOwn(rev)
		}
	}
}

// write creates, changes or deletes an object, and returns its revision if the answer has one.
func (w *persistentWriter) write(o *writtenObject) (int64, error) {
	method, path := http.MethodPut, collection+"/"+o.name
	switch {
	case !o.exists:
		method, path = http.MethodPost, collection
	case rand.IntN(10) == 0:
		if _, err := w.ask(http.MethodDelete, path, nil); err != nil {
			return 0, err
		}
		o.exists = false
		return 0, nil
	}
	m, err := w.ask(method, path, &configMap{
		APIVersion: "v1", Kind: "ConfigMap", Metadata: meta{Name: o.name, Labels: map[string]string{"crash": "yes"}},
		Data: map[string]string{"v": strconv.Itoa(o.value + 1)},
	})
	if err != nil {
		return 0, err
	}
	v, err := m.version()
	if err != nil {
		return 0, err
	}
	o.value, o.exists = v.value, true
	o.acks = append(o.acks, ack(v))
	return v.revision, nil
}

// recover reads an object after a write without an answer until the server answers again: the write was either stored or not, and
// the acknowledged state is not lost.
func (w *persistentWriter) recover(o *writtenObject) {
	for !w.Failed() {
		explainedByKill := w.startRequest()
		m, err := w.ask(http.MethodGet, collection+"/"+o.name, nil)
		switch {
		case errors.Is(err, errNotFound):
			if o.exists { // the deletion has happened
				w.happened.Add(1)
			}
			o.exists = false
			return
		case err == nil:
			v, err := m.version()
			known := ack{}
			if len(o.acks) > 0 {
				known = o.acks[len(o.acks)-1]
			}
			if err != nil || v.value != o.value && v.value != o.value+1 || v.value == known.value && v.revision != known.revision {
				w.Errorf("%s: version %d at %d follows version %d, acknowledged was %+v (%v)", o.name, v.value, v.revision, o.value, known,
					err)
			}
			if v.value > o.value {
				w.happened.Add(1)
			} else if !o.exists {
				w.Errorf("%s: its deletion was acknowledged, and it is there", o.name)
			}
			o.value, o.exists = v.value, true
			return
		case !explainedByKill():
			w.Errorf("read %s: %v", o.name, err)
			return
		}
		pause()
	}
}

// watchOwn watches from the revision of a write, and checks that the first events are later than it and in order.
func (w *persistentWriter) watchOwn(rev int64) {
	explainedByKill, seen, events := w.startRequest(), rev, 1+rand.IntN(3)
	err := w.watchEvents(w.ctx, w.client, rev, func(kind string, text []byte) (bool, error) {
		var m configMap
		if err := json.Unmarshal(text, &m); err != nil {
			return false, &brokenWatch{err}
		}
		v, err := m.version()
		if err != nil || v.revision <= seen {
			return false, &brokenWatch{fmt.Errorf("%s %s comes after %d: %v", kind, text, seen, err)}
		}
		seen = v.revision
		events--
		return events > 0, nil
	})
	if errors.As(err, new(*brokenWatch)) || err != nil && w.ctx.Err() == nil && !explainedByKill() {
		w.Errorf("watch from the revision %d of a write: %v", rev, err)
	}
	w.ownResumed.Add(1)
}

// writeMarker makes the last write of the test and returns its revision.
func (w *persistentWriter) writeMarker() int64 {
	w.Helper()
	o := &writtenObject{name: "last"}
	w.objects = append(w.objects, o)
	rev, err := w.write(o)
	if err != nil {
		w.Fatal(err)
	}
	return rev
}

var errNotFound = errors.New("not found")

// ask sends a request and reads the object of the answer.
func (w *persistentWriter) ask(method, path string, body *configMap) (*configMap, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	code, answer, err := w.exchange(w.client, method, path, text)
	if err == nil && code == http.StatusNotFound && method == http.MethodGet {
		err = errNotFound
	}
	if err == nil && code >= 300 {
		err = fmt.Errorf("%s %s: %d %.300s", method, path, code, answer)
	}
	m := &configMap{}
	return m, cmp.Or(err, json.Unmarshal(answer, m))
}

// compare checks that all watches got the same events, that every acknowledged write is among them, and that they lead to the state
// of a list.
func (l *load) compare(watchers []*resumingWatch, writers []*persistentWriter) {
	l.Helper()
	if l.Failed() {
		return
	}
	first := watchers[0]
	for i, r := range watchers[1:] {
		if !slices.Equal(first.events, r.events) {
			l.Errorf("watch %d saw %d events, and not the same as the first with %d", i+1, len(r.events), len(first.events))
		}
	}
	first.compare(l.list())
	type key struct {
		name  string
		value int
	}
	seen := map[key]int64{}
	for _, e := range first.events {
		if e.kind != "DELETED" {
			seen[key{e.name, e.value}] = e.revision
		}
	}
	for _, w := range writers {
		for _, o := range w.objects {
			for _, a := range o.acks {
				if rev := seen[key{o.name, a.value}]; rev != a.revision {
					l.Errorf("%s: version %d was acknowledged at %d; the watch saw it at %d", o.name, a.value, a.revision, rev)
				}
			}
		}
	}
}
