package otlp

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/hop"
	"proa.dev/trace/otlp/otlptest"
)

// exporting is an exporter in a bubble of virtual time, with a receiver that answers as a test says.
type exporting struct {
	*Exporter
	t        *testing.T
	recorder *hop.Recorder
	log      bytes.Buffer
	bodies   [][]byte
	times    []time.Duration // when they came, since the start
	stop     context.CancelFunc
	done     chan struct{}
}

// export starts an exporter. answer gets the number of the request, from 0 on; a batch for which it returns nil has arrived.
func export(t *testing.T, answer func(ctx context.Context, n int) error) *exporting {
	t.Helper()
	start := time.Now()
	x := &exporting{t: t, done: make(chan struct{})}
	n := 0
	x.recorder = hop.NewRecorder(10000)
	config := ExporterConfig{Records: x.recorder, Log: slog.New(slog.NewTextHandler(&x.log, nil))}
	config.ClusterUID = func(context.Context) string { return "u-cluster" }
	x.Exporter = newExporter(config, senderFunc(func(ctx context.Context, r *exportRequest) error {
		x.times = append(x.times, time.Since(start))
		n++
		if err := answer(ctx, n-1); err != nil {
			return err
		}
		body, err := json.Marshal(r)
		x.bodies = append(x.bodies, body)
		return err
	}))
	ctx, stop := context.WithCancel(t.Context())
	x.stop = stop
	go func() { defer close(x.done); x.Run(ctx) }()
	return x
}

// senderFunc is a sender of a test.
type senderFunc func(ctx context.Context, r *exportRequest) error

func (f senderFunc) send(ctx context.Context, r *exportRequest) error { return f(ctx, r) }
func (f senderFunc) close()                                           {}

func (x *exporting) end() {
	x.stop()
	<-x.done
}

// spans returns what has arrived, by the first word of the name and the resource.
func (x *exporting) spans() map[string]otlptest.Span {
	x.t.Helper()
	out := map[string]otlptest.Span{}
	for _, body := range x.bodies {
		for _, s := range decode(x.t, body) {
			verb, _, _ := strings.Cut(s.GetName(), " ")
			out[verb+" "+s.Tags["proa.object.resource"]] = s
		}
	}
	return out
}

func always(err error) func(context.Context, int) error {
	return func(context.Context, int) error { return err }
}

// took is the time of a record at one hop.
func took(h hop.Hop) (out [hop.Count + 1]time.Duration) {
	out[h] = time.Millisecond
	return out
}

// chain is the creation of a Deployment and what it causes. The delivery comes before the record of the write that it delivers.
func chain(now time.Time) []hop.Record {
	return []hop.Record{
		{UID: "u-web", Rev: 7, Verb: hop.Deliver, Group: "apps", Resource: "deployments", User: "the controller", CauseUID: "u-web",
			CauseRev: 7, Start: now, Took: took(hop.Watch)},
		{UID: "u-web", Rev: 7, Verb: "create", Group: "apps", Resource: "deployments", Namespace: "shop", Name: "web", User: "ann",
			Start: now, Took: took(hop.Commit), Code: 201},
		{UID: "u-set", Rev: 8, Verb: "create", Group: "apps", Resource: "replicasets", CauseUID: "u-web", CauseRev: 7, Start: now,
			Took: took(hop.Commit)},
		{UID: "u-pod", Rev: 9, Verb: "create", Resource: "pods", CauseUID: "u-set", CauseRev: 8, Start: now, Took: took(hop.Commit)},
		{UID: "u-pod", Rev: 9, Verb: hop.Pull, Resource: "pods", User: "system:node:n1", Process: "node n1", Start: now,
			Took: took(hop.Node)},
		{UID: "u-x", Rev: 9, Verb: hop.Reconcile, Resource: "jobs", CauseUID: "u-elsewhere", CauseRev: 3, Start: now,
			Took: took(hop.Control)},
	}
}

func TestExporterGivesWhatAWriteCausesItsTraceID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := export(t, always(nil))
		for i, r := range chain(time.Now()) {
			if x.recorder.Add(r); i == 0 {
				time.Sleep(batchTime + time.Second) // the delivery alone is a batch
			}
		}
		time.Sleep(2*batchTime + time.Second)
		synctest.Wait()
		spans := x.spans()
		root := WriteTraceID("u-web", 7)
		for name, cause := range map[string]string{"create deployments.apps": "", "create replicasets.apps": "create deployments.apps",
			"create pods": "create replicasets.apps", "deliver deployments.apps": "create deployments.apps", "pull pods": ""} {
			s := spans[name]
			if s.Span == nil || TraceID(s.GetTraceId()) != root || len(s.GetParentSpanId()) != 0 {
				t.Errorf("%s is %v, want it in the trace %x", name, s, root)
				continue
			}
			if cause == "" && len(s.GetLinks()) == 0 {
				continue
			}
			if l := s.GetLinks(); len(l) != 1 || !bytes.Equal(l[0].GetSpanId(), spans[cause].GetSpanId()) ||
				TraceID(l[0].GetTraceId()) != root {
				t.Errorf("%s has the links %v, want one to %s", name, l, cause)
			}
		}
		far := spans["reconcile jobs"]
		if a := far.Tags; TraceID(far.GetTraceId()) != WriteTraceID("u-elsewhere", 3) || len(far.GetLinks()) != 0 ||
			a["proa.cause.uid"] != "u-elsewhere" || a["proa.cause.revision"] != "3" {
			t.Errorf("what a write at another server has caused is %v", far)
		}
		if commit := spans["commit pods"]; commit.Span == nil || len(commit.GetParentSpanId()) == 0 {
			t.Errorf("a hop of a write is %v, want it to be a part of the write", commit)
		}
		x.end()
		if x.dropped.Load() != 0 || x.sent.Load() == 0 {
			t.Errorf("%d spans were dropped and %d sent", x.dropped.Load(), x.sent.Load())
		}
	})
}

func TestAttributesOfWorkOnANode(t *testing.T) {
	var x writeIndex
	var out batch
	for _, r := range []hop.Record{
		{UID: "u", Verb: hop.Container, Resource: "pods", Name: "web", User: "system:node:n1", Steps: []hop.Step{{Name: "start main"}},
			Took: took(hop.Node)},
		{UID: "u", Verb: hop.Probe, Resource: "pods", Name: "web", Steps: []hop.Step{{Name: "readiness side"}}, Took: took(hop.Node)},
		{UID: "u", Verb: hop.Reconcile, Resource: "namespaces", Namespace: "shop", Name: "shop", Took: took(hop.Control)},
	} {
		x.addSpans(&out, &r)
	}
	body, err := json.Marshal(out.request())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range decode(t, body) {
		keys := map[string]bool{}
		for _, a := range s.GetAttributes() {
			if keys[a.GetKey()] {
				t.Errorf("%s has the attribute %s twice", s.GetName(), a.GetKey())
			}
			keys[a.GetKey()] = true
		}
		if len(s.GetParentSpanId()) == 0 {
			got[s.GetName()] = strings.Join([]string{s.Tags["k8s.node.name"], s.Tags["k8s.pod.name"], s.Tags["k8s.container.name"],
				s.Tags["k8s.namespace.name"]}, ",")
		}
	}
	want := map[string]string{"container main": "n1,web,main,", "readiness probe of side": ",web,side,", "reconcile": ",,,shop"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("node, Pod, container and namespace are %v, want %v", got, want)
	}
}

// TestNodeUIDs checks that work on a node has the UID of the Node, if there is one, and that the spans of a Node have its UID once.
func TestNodeUIDs(t *testing.T) {
	var x writeIndex
	out := batch{nodeUID: func(name string) string { return map[string]string{"n1": "u-n1"}[name] }}
	for _, r := range []hop.Record{
		{UID: "u", Verb: hop.Receive, Resource: "pods", Name: "web", User: "system:node:n1", Took: took(hop.Node)},
		{UID: "u", Verb: hop.Sandbox, Resource: "pods", Name: "web", User: "system:node:gone", Took: took(hop.Node)},
		{UID: "u-n1", Rev: 1, Verb: "create", Resource: "nodes", Name: "n1", User: "system:node:n1"},
		{UID: "u", Verb: hop.Reconcile, Resource: "pods", Name: "web", User: "some-controller", Took: took(hop.Control)},
	} {
		x.addSpans(&out, &r)
	}
	body, err := json.Marshal(out.request())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range decode(t, body) {
		for _, a := range s.GetAttributes() {
			if a.GetKey() == "k8s.node.uid" {
				got[s.GetName()] += a.GetValue().GetStringValue()
			}
		}
	}
	if want := map[string]string{"receive": "u-n1", "create nodes": "u-n1"}; !reflect.DeepEqual(got, want) {
		t.Errorf("the UIDs of nodes are %v, want %v", got, want)
	}
}

func TestExporterHonoursATraceParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := export(t, always(nil))
		records := chain(time.Now())
		records[1].Origin = &hop.Origin{TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
		for _, r := range records[:5] {
			x.recorder.Add(r)
		}
		x.recorder.Add(hop.Record{Verb: "delete", Resource: "nodes", Refused: hop.Authorize, Code: 403, Start: time.Now(),
			Origin: records[1].Origin, Took: took(hop.Authorize)})
		x.end()
		for name, s := range x.spans() {
			if got := hex.EncodeToString(s.GetTraceId()); got != "0af7651916cd43dd8448eb211c80319c" {
				t.Errorf("%s is in the trace %s", name, got)
			}
			parent := hex.EncodeToString(s.GetParentSpanId())
			if want := name == "create deployments.apps" || name == "delete nodes"; (parent == "b7ad6b7169203331") != want {
				t.Errorf("%s has the parent %q", name, parent)
			}
		}
	})
}

func TestExporterSendsBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := export(t, always(nil))
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(x.times) != 0 {
			t.Error("it sends something although there is nothing")
		}
		x.recorder.Add(hop.Record{UID: "a", Rev: 1, Verb: "create"})
		time.Sleep(time.Second)
		x.recorder.Add(hop.Record{UID: "b", Rev: 1, Verb: "create"})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(x.times) != 1 || x.times[0] != time.Minute+batchTime {
			t.Errorf("batches were sent at %v, want one after %v", x.times, batchTime)
		}
		for i := range int64(3 * maxBatch) {
			x.recorder.Add(hop.Record{UID: "c", Rev: 2 + i, Verb: "create"})
			synctest.Wait()
		}
		if len(x.times) != 4 {
			t.Errorf("%d batches were sent, want that full ones do not wait", len(x.times))
		}
		x.recorder.Add(hop.Record{UID: "d", Rev: 1, Verb: "create"})
		x.end()
		if x.sent.Load() != 3*maxBatch+3 || len(x.bodies) != 5 {
			t.Errorf("%d spans arrived in %d batches: the last one must be sent when the process ends", x.sent.Load(), len(x.bodies))
		}
	})
}

// TestExporterEndsWithManyRecords: what has gathered when the process ends is sent in batches of the usual size, and a receiver that does
// not answer does not hold up the end of the process for long.
func TestExporterEndsWithManyRecords(t *testing.T) {
	const count = 6 * maxBatch
	flood := func(x *exporting) {
		x.recorder.Add(hop.Record{UID: "first", Rev: 1, Verb: "create"})
		time.Sleep(2 * batchTime) // it is being sent now
		synctest.Wait()
		for i := range int64(count) {
			x.recorder.Add(hop.Record{UID: "c", Rev: 2 + i, Verb: "create"})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		x := export(t, func(_ context.Context, n int) error {
			if n == 0 {
				time.Sleep(time.Minute)
			}
			return nil
		})
		flood(x)
		x.end()
		if x.sent.Load() != count+1 || len(x.bodies) != 1+count/maxBatch {
			t.Errorf("%d spans arrived in %d batches", x.sent.Load(), len(x.bodies))
		}
		for _, body := range x.bodies {
			if n := len(decode(t, body)); n > maxBatch {
				t.Errorf("a batch has %d spans", n)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		x := export(t, func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		})
		flood(x)
		begin := time.Now()
		x.end()
		if took := time.Since(begin); took > 4*lastTry || x.dropped.Load() != count+1 {
			t.Errorf("the end took %v, %d spans are dropped", took, x.dropped.Load())
		}
	})
}

func TestExporterTriesAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		fails  int
		sent   uint64
		second time.Duration // when the second try is, after the first; 0 for none
		spread time.Duration
	}{
		{"the receiver asks for time", &refusedError{temporary: true, retryAfter: 7 * time.Second}, 1, 1,
			7 * time.Second, 0},
		{"it is not available", &refusedError{temporary: true}, 1, 1, firstPause, firstPause / 4},
		{"it cannot be reached", errors.New("connection refused"), 4, 1, firstPause, firstPause / 4},
		{"it never can", errors.New("connection refused"), 1000, 0, firstPause, firstPause / 4},
		{"it refuses", &refusedError{code: http.StatusBadRequest}, 1000, 0, 0, 0},
		{"it takes a part", &partialError{spans: 1}, 1000, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := export(t, func(_ context.Context, n int) error {
					if n < c.fails {
						return c.err
					}
					return nil
				})
				x.recorder.Add(hop.Record{UID: "a", Rev: 1, Verb: "create"})
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if x.sent.Load() != c.sent || x.sent.Load()+x.dropped.Load() != 1 {
					t.Errorf("%d spans were sent and %d dropped, want %d sent of 1", x.sent.Load(), x.dropped.Load(), c.sent)
				}
				want := min(c.fails+1, maxTries)
				if c.second == 0 {
					want = 1
				}
				if len(x.times) != want {
					t.Fatalf("it tried %d times, want %d", len(x.times), want)
				}
				if c.second != 0 {
					if d := x.times[1] - x.times[0]; d < c.second-c.spread || d > c.second+c.spread {
						t.Errorf("the second try came after %v, want %v", d, c.second)
					}
				}
				x.end()
			})
		})
	}
}

func TestExporterNeverMakesAnybodyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := export(t, func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }) // a receiver that hangs
		begin := time.Now()
		const n = 2*queueSize + maxBatch
		for i := range int64(n) {
			x.recorder.Add(hop.Record{UID: "a", Rev: 1 + i, Verb: "create"})
		}
		if time.Since(begin) != 0 {
			t.Errorf("adding records took %v", time.Since(begin))
		}
		if d := x.dropped.Load(); d < n-queueSize-2*maxBatch {
			t.Errorf("%d spans were dropped of %d that nobody takes", d, n)
		}
		synctest.Wait()
		begin = time.Now()
		x.end()
		if d := time.Since(begin); d > 4*lastTry {
			t.Errorf("the process took %v to end because the receiver hangs", d)
		}
		if x.sent.Load() != 0 || x.dropped.Load() != n {
			t.Errorf("%d spans were sent and %d dropped of %d", x.sent.Load(), x.dropped.Load(), n)
		}
	})
}

func TestDroppedSpansAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := export(t, always(&refusedError{code: http.StatusBadRequest, status: "400 Bad Request", url: "http://x"}))
		for i := range int64(60) {
			x.recorder.Add(hop.Record{UID: "a", Rev: 1 + i, Verb: "create"})
			time.Sleep(3 * time.Second)
		}
		x.end()
		lines := strings.Count(x.log.String(), "\n")
		if lines < 3 || lines > 4 || !strings.Contains(x.log.String(), "400 Bad Request") {
			t.Errorf("in three minutes %d lines were logged:\n%s", lines, x.log.String())
		}
	})
}

func TestWritesAreForgotten(t *testing.T) {
	var x writeIndex
	for i := range int64(maxWrites + 100) {
		x.add(&hop.Record{UID: "a", Rev: 1 + i, Verb: "create"})
	}
	if len(x.writes) != maxWrites || len(x.ring) != maxWrites || x.writes[writeKey{"a", 100}] != nil ||
		x.writes[writeKey{"a", 101}] == nil {
		t.Errorf("%d writes are remembered, want the last %d", len(x.writes), maxWrites)
	}
	for i := range int64(3) { // a circle
		x.add(&hop.Record{UID: "c", Rev: 1 + i, Verb: "create", CauseUID: "c", CauseRev: 1 + (i+1)%3})
	}
	if a, b := x.traceID(writeKey{"c", 1}), x.traceID(writeKey{"c", 2}); a != b || a == (TraceID{}) {
		t.Errorf("writes in a circle have the trace IDs %x and %x", a, b)
	}
	for name, r := range map[string]*hop.Record{
		"a refused write": {UID: "r", Verb: "create", Refused: hop.Schema},
		"no write":        {UID: "r", Rev: 1, Verb: hop.Pull},
	} {
		if x.add(r); x.writes[writeKey{r.UID, r.Rev}] != nil {
			t.Errorf("%s is remembered as a write", name)
		}
	}
	if x.recordTraceID(&hop.Record{Verb: "create", Name: "a"}) == x.recordTraceID(&hop.Record{Verb: "create", Name: "b"}) {
		t.Error("two refused writes are one trace")
	}
}
