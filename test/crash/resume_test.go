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

// TestResumeUnderLoad kills the server again and again while clients write and others watch. All go on by themselves as soon as they
// can connect. Watches are also broken off and resumed in between, after the last event that was seen or at the revision of a write of
// one's own. No watch loses an event, gets one twice or gets one out of order. PROA_CRASH_KILLS says how often the server is killed.
func TestResumeUnderLoad(t *testing.T) {
	c := newCluster(t)
	c.start()
	setUp(c)
	l := &load{cluster: c}
	l.ctx, l.stop = context.WithCancel(t.Context())
	defer l.stop()
	begin := c.list().revision
	watchers := make([]*resumer, 5)
	var writing, watching sync.WaitGroup
	for i := range watchers {
		watchers[i] = &resumer{load: l, history: &history{cluster: c, after: begin}}
		watching.Go(watchers[i].run)
	}
	writers := make([]*steadyWriter, 8)
	for i := range writers {
		writers[i] = &steadyWriter{load: l, client: c.client()}
		for n := range 3 {
			writers[i].objects = append(writers[i].objects, &steadyObject{name: fmt.Sprintf("w%d-%d", i, n)})
		}
		writing.Go(writers[i].run)
	}
	for kill := range kills(t, 6) {
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
	last := writers[0].mark()
	l.last.Store(last)
	watching.Wait()
	l.compare(watchers, writers)
	slices.Sort(c.starts)
	t.Logf("%s; %d events seen by each of %d watches; start takes %v, at most %v", l, len(watchers[0].events), len(watchers),
		c.starts[len(c.starts)/2].Round(time.Millisecond), c.starts[len(c.starts)-1].Round(time.Millisecond))
}

// load is what clients that write and watch through kills of the server share.
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

// begin is called before a request; excused says afterwards whether a kill explains that it failed.
func (l *load) begin() (excused func() bool) {
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

// resumer is a watch of all objects that is broken off and resumed again and again.
type resumer struct {
	*history
	load *load
}

// run watches until the last revision.
func (r *resumer) run() {
	client := r.client()
	defer client.CloseIdleConnections()
	for !r.Failed() {
		last := r.load.last.Load()
		if last > 0 && r.after >= last {
			return
		}
		excused := r.load.begin()
		err := r.watch(client, 1+rand.IntN(400))
		if errors.As(err, new(*brokenWatch)) || err != nil && !excused() {
			r.Errorf("watch after %d: %v", r.after, err)
			return
		}
		if err != nil {
			pause()
		}
		r.load.resumed.Add(1)
	}
}

// brokenWatch is an error that no kill explains.
type brokenWatch struct{ error }

// watch resumes after the last event and takes so many events, or fewer.
func (r *resumer) watch(client *http.Client, events int) error {
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

// watchEvents watches all objects after a revision until the callback wants no more, or the connection breaks, which is an error.
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
			return nil //nolint:nilerr // the server was killed, or two seconds are over; what was cut off will be sent again
		}
		if more, err = each(e.Type, e.Object); err != nil {
			return err
		}
	}
	return nil
}

// steadyObject is an object that one writer creates, changes and deletes. Its value grows with each write.
type steadyObject struct {
	name   string
	value  int // the last one that is known to be stored
	exists bool
	acks   []ack // of writes that told a revision
}

// steadyWriter writes through kills.
type steadyWriter struct {
	*load
	client  *http.Client
	objects []*steadyObject
}

func (w *steadyWriter) run() {
	defer w.client.CloseIdleConnections()
	for w.ctx.Err() == nil && !w.Failed() {
		o := w.objects[rand.IntN(len(w.objects))]
		excused := w.begin()
		rev, err := w.write(o)
		if err != nil {
			if !excused() {
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

// write creates an object, or changes it, or deletes it, and returns the revision if it is told.
func (w *steadyWriter) write(o *steadyObject) (int64, error) {
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
	o.acks = append(o.acks, ack{v.value, v.revision})
	return v.revision, nil
}

// recover reads the object after a write without an answer until the server is back: the write has happened or it has not, and what
// was acknowledged is there.
func (w *steadyWriter) recover(o *steadyObject) {
	for !w.Failed() {
		excused := w.begin()
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
		case !excused():
			w.Errorf("read %s: %v", o.name, err)
			return
		}
		pause()
	}
}

// watchOwn watches from the revision of a write. The first events are later than it, and in order.
func (w *steadyWriter) watchOwn(rev int64) {
	excused, seen, events := w.begin(), rev, 1+rand.IntN(3)
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
	if errors.As(err, new(*brokenWatch)) || err != nil && w.ctx.Err() == nil && !excused() {
		w.Errorf("watch from the revision %d of a write: %v", rev, err)
	}
	w.ownResumed.Add(1)
}

// mark makes the last write and returns its revision.
func (w *steadyWriter) mark() int64 {
	w.Helper()
	o := &steadyObject{name: "last"}
	w.objects = append(w.objects, o)
	rev, err := w.write(o)
	if err != nil {
		w.Fatal(err)
	}
	return rev
}

var errNotFound = errors.New("not found")

// ask sends a request and reads the object of the answer.
func (w *steadyWriter) ask(method, path string, body *configMap) (*configMap, error) {
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

// compare expects that all watches saw the same, that every acknowledged write is in it, and that it leads to what a list shows.
func (l *load) compare(watchers []*resumer, writers []*steadyWriter) {
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
