package nodereports

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/nodereport"
	"proa.dev/server/authz"
)

// caller is a request of a user.
type caller struct {
	kind.Server
	user.DefaultInfo
}

func (c caller) User() user.Info { return &c.DefaultInfo }

func nodeUser(name string) caller {
	return caller{DefaultInfo: user.DefaultInfo{Name: "system:node:" + name, Groups: []string{user.NodesGroup}}}
}

// world is a receiver with the node a, which has the Pod mine, and the node b, which has the Pod other.
type world struct {
	*Receiver
	objects map[string]kind.Object
	records *hop.Recorder
	stored  int // how often a record was stored
}

func newWorld() *world {
	w := &world{objects: map[string]kind.Object{}, records: hop.NewRecorder(1000)}
	created := metav1.NewTime(time.Now().Add(-time.Minute))
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID("u-" + name), CreationTimestamp: created}
	}
	for _, node := range []string{"a", "b"} {
		w.objects["nodes//"+node] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	}
	w.objects["pods/d/mine"] = &corev1.Pod{ObjectMeta: meta("mine"), Spec: corev1.PodSpec{NodeName: "a"}}
	w.objects["pods/d/other"] = &corev1.Pod{ObjectMeta: meta("other"), Spec: corev1.PodSpec{NodeName: "b"}}
	w.objects["pods/d/unbound"] = &corev1.Pod{ObjectMeta: meta("unbound")}
	w.objects["services/d/svc"] = &corev1.Service{ObjectMeta: meta("svc")}
	w.objects["endpointslices.discovery.k8s.io/d/slice"] = &discoveryv1.EndpointSlice{ObjectMeta: meta("slice")}
	w.objects["secrets/d/secret"] = &corev1.Secret{ObjectMeta: meta("secret")}
	w.Receiver = New(Config{
		NodeOf: authz.NodeName,
		Record: func(r hop.Record) { w.stored++; w.records.Update(r) },
		Open: func(name string) []hop.Record {
			return w.records.Select(func(r *hop.Record) bool { return r.Open && r.User == name })
		},
		Find: func(on schema.GroupResource, namespace, name string) (kind.Object, bool) {
			o, found := w.objects[on.String()+"/"+namespace+"/"+name]
			return o, found
		},
	})
	return w
}

// send sends records of node a, and returns what is recorded.
func (w *world) send(t *testing.T, records ...nodereport.Record) []hop.Record {
	t.Helper()
	r := &nodereport.NodeReport{Node: "a", Sent: time.Now(), Records: records}
	if err := w.Receive(t.Context(), nodeUser("a"), r); err != nil {
		t.Fatal(err)
	}
	return w.records.Select(func(*hop.Record) bool { return true })
}

// pull is a true record of node a, which has ended now.
func pull() nodereport.Record {
	return nodereport.Record{Verb: hop.Pull, Resource: "pods", Namespace: "d", Name: "mine", UID: "u-mine", Revision: 7,
		Start: time.Now().Add(-5 * time.Second), Took: 5 * time.Second, Wait: time.Second,
		Steps: []nodereport.Step{{Name: "image of web", Detail: "5 bytes: nginx", Took: 5 * time.Second}}}
}

func TestAReportIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		got := w.send(t, pull())
		if len(got) != 1 || got[0].UID != "u-mine" || got[0].Rev != 7 || got[0].User != "system:node:a" || got[0].Process != "agent of a" ||
			got[0].CauseUID != "u-mine" || got[0].CauseRev != 7 || got[0].Took[hop.Node] != 5*time.Second ||
			got[0].Wait[hop.Node] != time.Second || !got[0].Start.Equal(time.Now().Add(-5*time.Second)) || got[0].Open ||
			len(got[0].Steps) != 1 || got[0].Steps[0].Detail != "5 bytes: nginx" || got[0].Steps[0].Hop != hop.Node {
			t.Errorf("%+v", got)
		}
		program := pull()
		program.Verb, program.Group, program.Resource = hop.Program, "discovery.k8s.io", "endpointslices"
		program.Name, program.UID = "slice", "u-slice"
		w.send(t, program)
		program.Group, program.Resource, program.Name, program.UID = "", "services", "svc", "u-svc"
		if got := w.send(t, program); len(got) != 3 || got[2].Took[hop.Network] != 5*time.Second {
			t.Errorf("%+v", got)
		}
	})
}

// TestLiesAboutObjectsAreNotRecorded takes each true record and changes one thing.
func TestLiesAboutObjectsAreNotRecorded(t *testing.T) {
	for name, lie := range map[string]func(*nodereport.Record){
		"a Pod of another node":         func(r *nodereport.Record) { r.Name, r.UID = "other", "u-other" },
		"a Pod without a node":          func(r *nodereport.Record) { r.Name, r.UID = "unbound", "u-unbound" },
		"another UID":                   func(r *nodereport.Record) { r.UID = "u-other" },
		"no UID":                        func(r *nodereport.Record) { r.UID = "" },
		"a Pod that does not exist":     func(r *nodereport.Record) { r.Name = "none" },
		"another namespace":             func(r *nodereport.Record) { r.Namespace = "kube-system" },
		"a Secret":                      func(r *nodereport.Record) { r.Resource, r.Name, r.UID = "secrets", "secret", "u-secret" },
		"a Service as if it were a Pod": func(r *nodereport.Record) { r.Resource, r.Name, r.UID = "services", "svc", "u-svc" },
		"a Pod as if it had rules":      func(r *nodereport.Record) { r.Verb = hop.Program },
		"a write of a Service": func(r *nodereport.Record) {
			r.Verb, r.Resource, r.Name, r.UID = "create", "services", "svc", "u-svc"
		},
		"a write":              func(r *nodereport.Record) { r.Verb = "create" },
		"a reconcile":          func(r *nodereport.Record) { r.Verb = hop.Reconcile },
		"a scheduling attempt": func(r *nodereport.Record) { r.Verb = hop.ScheduleAttempt },
		"no verb":              func(r *nodereport.Record) { r.Verb = "" },
		"no revision":          func(r *nodereport.Record) { r.Revision = 0 },
		"a negative revision":  func(r *nodereport.Record) { r.Revision = -1 },
		"too many steps":       func(r *nodereport.Record) { r.Steps = make([]nodereport.Step, nodereport.MaxSteps+1) },
	} {
		t.Run(name, func(t *testing.T) {
			w, r := newWorld(), pull()
			lie(&r)
			if got := w.send(t, r); len(got) != 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestOthersMayNotReport(t *testing.T) {
	for name, who := range map[string]caller{
		"another node":     nodeUser("b"),
		"a node unnamed":   nodeUser(""),
		"an admin":         {DefaultInfo: user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}},
		"not in the group": {DefaultInfo: user.DefaultInfo{Name: "system:node:a"}},
		"only the group":   {DefaultInfo: user.DefaultInfo{Name: "a", Groups: []string{user.NodesGroup}}},
	} {
		w := newWorld()
		err := w.Receive(t.Context(), who, &nodereport.NodeReport{Node: "a", Sent: time.Now(), Records: []nodereport.Record{pull()}})
		if !apierrors.IsForbidden(err) || w.stored > 0 || len(w.nodes) > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	w := newWorld()
	if err := w.Receive(t.Context(), nodeUser(""), &nodereport.NodeReport{}); !apierrors.IsForbidden(err) {
		t.Errorf("a report of nobody: %v", err)
	}
	if err := w.Receive(t.Context(), nodeUser("c"), &nodereport.NodeReport{Node: "c"}); err != nil || len(w.nodes) > 0 {
		t.Errorf("a node without a Node: %v, %d remembered", err, len(w.nodes))
	}
}

func TestLiesAboutTimesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
		for name, lie := range map[string]func(*nodereport.Record){
			"in the future":      func(r *nodereport.Record) { r.Start = time.Now().Add(time.Hour) },
			"ends in the future": func(r *nodereport.Record) { r.Took = time.Hour },
			"before the Pod":     func(r *nodereport.Record) { r.Start, r.Took = time.Now().Add(-24*time.Hour), 24*time.Hour },
			"the year 9999":      func(r *nodereport.Record) { r.Start = far },
			"the year 1":         func(r *nodereport.Record) { r.Start = time.Time{} },
			"negative":           func(r *nodereport.Record) { r.Took, r.Wait = -time.Hour, -time.Hour },
			"the longest":        func(r *nodereport.Record) { r.Took, r.Wait = 1<<63-1, 1<<63-1 },
			"steps": func(r *nodereport.Record) {
				r.Steps = []nodereport.Step{{After: -1 << 63, Took: 1<<63 - 1, Wait: 1<<63 - 1}, {After: 1<<63 - 1, Took: 1<<63 - 1}}
			},
		} {
			w, r := newWorld(), pull()
			lie(&r)
			got := w.send(t, r)
			if len(got) != 1 {
				t.Fatalf("%s: %+v", name, got)
			}
			g, now := got[0], time.Now()
			if g.Start.Before(now.Add(-time.Minute)) || g.Start.After(now) || g.Took[hop.Node] < 0 ||
				g.Start.Add(g.Took[hop.Node]).After(now) || g.Wait[hop.Node] < 0 || g.Wait[hop.Node] > g.Took[hop.Node] {
				t.Errorf("%s: %+v", name, g)
			}
			for _, s := range g.Steps {
				if s.After < 0 || s.Took < 0 || s.After+s.Took > g.Took[hop.Node] || s.Wait < 0 || s.Wait > s.Took {
					t.Errorf("%s: step %+v of %v", name, s, g.Took[hop.Node])
				}
			}
		}
		// A clock that is wrong by any amount.
		for _, sent := range []time.Time{far, {}, time.Now().Add(time.Hour)} {
			w := newWorld()
			if err := w.Receive(t.Context(), nodeUser("a"), &nodereport.NodeReport{Node: "a", Sent: sent,
				Records: []nodereport.Record{pull()}}); err != nil {
				t.Fatal(err)
			}
			for _, g := range w.records.Of("u-mine") {
				if g.Start.Before(time.Now().Add(-time.Minute)) || g.Start.After(time.Now()) {
					t.Errorf("sent at %v: %v", sent, g.Start)
				}
			}
		}
	})
}

func TestRulesTakeAnHourAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := newWorld(), pull()
		w.objects["services/d/svc"].SetCreationTimestamp(metav1.NewTime(time.Now().Add(-24 * time.Hour)))
		r.Verb, r.Resource, r.Name, r.UID = hop.Program, "services", "svc", "u-svc"
		r.Start, r.Took = time.Now().Add(-20*time.Hour), 20*time.Hour
		if got := w.send(t, r); len(got) != 1 || got[0].Took[hop.Network] != maxTook {
			t.Errorf("%+v", got)
		}
	})
}

func TestTextsAreCleaned(t *testing.T) {
	w, r := newWorld(), pull()
	evil := "\x1b]0;x\x07\u202e<script> " + strings.Repeat("xxxxxxx ", 1<<17)
	r.Error = "https://u:secret@reg/ " + evil
	r.Steps = []nodereport.Step{{Name: evil, Detail: r.Error}}
	got := w.send(t, r)
	if len(got) != 1 {
		t.Fatalf("%+v", got)
	}
	for _, text := range []string{got[0].Error, got[0].Steps[0].Name, got[0].Steps[0].Detail} {
		if len(text) == 0 || len(text) > nodereport.MaxText || strings.Contains(text, "secret") ||
			strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q", text)
		}
	}
}

func TestClocksAreCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		// The agent's clock is an hour ahead; its second report takes no time, the others take three seconds.
		start := time.Now()
		for i, late := range []time.Duration{3 * time.Second, 0, 3 * time.Second} {
			r := pull()
			r.Start, r.Took, r.Revision = time.Now().Add(time.Hour), time.Second, int64(i+1)
			time.Sleep(time.Second) // the work
			report := &nodereport.NodeReport{Node: "a", Sent: time.Now().Add(time.Hour), Records: []nodereport.Record{r}}
			time.Sleep(late)
			if err := w.Receive(t.Context(), nodeUser("a"), report); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, r := range w.records.Of("u-mine") {
			got = append(got, r.Start.Sub(start).String())
		}
		if text := strings.Join(got, " "); text != "3s 4s 5s" { // only the first is wrong, by the time of its way
			t.Error(text)
		}
		// The clock is set right. What was measured before counts no longer after a while.
		time.Sleep(2 * clockWindow)
		r := pull()
		r.Revision = 9
		got = nil
		for _, r := range w.send(t, r) {
			got = append(got, time.Since(r.Start).String())
		}
		if got[len(got)-1] != "5s" {
			t.Error(got)
		}
	})
}

func TestOpenRecordsAreFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := pull()
		r.Open, r.Took = true, 0
		report := &nodereport.NodeReport{Node: "a", Sent: time.Now(), Records: []nodereport.Record{r}}
		time.Sleep(time.Second) // on its way
		if err := w.Receive(t.Context(), nodeUser("a"), report); err != nil {
			t.Fatal(err)
		}
		if got := w.records.Of("u-mine"); len(got) != 1 || !got[0].Open {
			t.Fatalf("%+v", got)
		}
		time.Sleep(10 * time.Second)
		r.Open, r.Took, r.Error = false, 15*time.Second, "failed"
		if got := w.send(t, r); len(got) != 1 || got[0].Open || got[0].Error != "failed" || got[0].Took[hop.Node] != 15*time.Second {
			t.Errorf("%+v", got)
		}
		if len(w.nodes["a"].open) != 0 {
			t.Error("it is remembered as open")
		}
	})
}

func TestAnAgentThatStartsAgainHasNoOpenWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		r := pull()
		r.Open = true
		w.send(t, r)
		time.Sleep(time.Minute)
		if err := w.Receive(t.Context(), nodeUser("a"), &nodereport.NodeReport{Node: "a", Sent: time.Now(),
			AgentStarted: time.Now()}); err != nil {
			t.Fatal(err)
		}
		got := w.records.Of("u-mine")
		if len(got) != 1 || got[0].Open || got[0].Error != "the agent of the node was restarted" ||
			got[0].Took[hop.Node] != 65*time.Second {
			t.Errorf("%+v", got)
		}
	})
}

func TestOpenRecordsAreFoundAgainAfterARestartOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		agentStarted, way := time.Now().Add(-10*time.Second), time.Duration(0)
		send := func(records ...nodereport.Record) {
			r := &nodereport.NodeReport{Node: "a", Sent: time.Now(), AgentStarted: agentStarted, Records: records}
			way += 30 * time.Millisecond
			time.Sleep(way)
			if err := w.Receive(t.Context(), nodeUser("a"), r); err != nil {
				t.Fatal(err)
			}
		}
		one, two, three := pull(), pull(), pull()
		two.Start, three.Verb = one.Start.Add(-2*time.Second), hop.Volumes
		one.Open, two.Open, three.Open = true, true, true
		send(one, two, three)
		w.Receiver = New(w.Config)
		time.Sleep(time.Second)
		one.Open, one.Error = false, "one"
		two.Open, two.Error = false, "two"
		send(one, two)
		got := w.records.Of("u-mine")
		if len(got) != 3 || got[0].Error != "two" || got[1].Error+got[2].Error != "one" || got[0].Open || got[1].Open == got[2].Open {
			t.Errorf("%+v", got)
		}
		// The last one is over when the agent has been restarted, too.
		w.Receiver = New(w.Config)
		agentStarted = time.Now()
		send()
		for _, r := range w.records.Of("u-mine") {
			if r.Open || r.Verb == hop.Volumes && r.Error != "the agent of the node was restarted" {
				t.Errorf("%+v", r)
			}
		}
	})
}

func TestReportsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		many := &nodereport.NodeReport{Node: "a", Sent: time.Now(), Records: make([]nodereport.Record, nodereport.MaxRecords+1)}
		if err := w.Receive(t.Context(), nodeUser("a"), many); !apierrors.IsBadRequest(err) || w.stored > 0 {
			t.Errorf("a report that is too large: %v", err)
		}
		// A node that reports without end.
		refused := 0
		for i := range 1_000_000 {
			r := pull()
			r.Revision, r.Open = int64(i+1), true
			report := &nodereport.NodeReport{Node: "a", Sent: time.Now(), Records: []nodereport.Record{r}}
			if err := w.Receive(t.Context(), nodeUser("a"), report); err != nil {
				if !apierrors.IsTooManyRequests(err) {
					t.Fatal(err)
				}
				refused++
			}
		}
		n := w.nodes["a"]
		if refused != 1_000_000-burst || w.stored > 2*burst || len(n.open) > maxOpen || len(n.offsets) > clockSamples {
			t.Errorf("%d refused, %d stored, %d open, %d clocks", refused, w.stored, len(n.open), len(n.offsets))
		}
		// The other node is not concerned, and this one may go on later.
		r := pull()
		r.Name, r.UID = "other", "u-other"
		if err := w.Receive(t.Context(), nodeUser("b"), &nodereport.NodeReport{Node: "b", Sent: time.Now(),
			Records: []nodereport.Record{r}}); err != nil || len(w.records.Of("u-other")) != 1 {
			t.Errorf("the other node: %v", err)
		}
		time.Sleep(time.Second)
		w.send(t, make([]nodereport.Record, rate)...)
		time.Sleep(2 * forgetAfter)
		w.objects["nodes//new"] = &corev1.Node{}
		if err := w.Receive(t.Context(), nodeUser("new"), &nodereport.NodeReport{Node: "new"}); err != nil || len(w.nodes) != 1 {
			t.Errorf("%v; %d nodes are remembered", err, len(w.nodes))
		}
	})
}

func FuzzReport(f *testing.F) {
	good, err := json.Marshal(&nodereport.NodeReport{Node: "a", Sent: time.Now(), Records: []nodereport.Record{pull()}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"node":"a","records":[{"verb":"program","resource":"services","namespace":"d","name":"svc","uid":"u-svc","revision":1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &nodereport.NodeReport{}
		if json.Unmarshal(data, r) != nil {
			return
		}
		w := newWorld()
		if w.Receive(t.Context(), nodeUser("a"), r) != nil && w.stored > 0 {
			t.Fatal("a report that was refused was recorded")
		}
		for _, g := range w.records.Select(func(*hop.Record) bool { return true }) {
			h := nodereport.HopOf(g.Verb)
			if h == 0 || g.User != "system:node:a" || g.Took[h] < 0 || g.Start.Add(g.Took[h]).After(time.Now()) ||
				len(g.Steps) > nodereport.MaxSteps || g.UID == "u-other" || len(g.Error) > nodereport.MaxText {
				t.Fatalf("%+v", g)
			}
			if strings.ContainsFunc(g.Error+fmt.Sprint(g.Steps), func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("%+v", g)
			}
		}
	})
}

// TestTheStopOfAPodIsRecordedAfterThePodIsGone checks that the end of work arrives that was open when the Pod was removed, and nothing
// else about a Pod that is gone.
func TestTheStopOfAPodIsRecordedAfterThePodIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, stop := newWorld(), pull()
		stop.Verb, stop.Open = hop.Stop, true
		w.send(t, stop)
		delete(w.objects, "pods/d/mine")
		other := stop
		other.Open, other.Revision = false, 8
		if got := w.send(t, stop, other); len(got) != 1 || !got[0].Open {
			t.Errorf("%+v", got)
		}
		time.Sleep(time.Second)
		stop.Open, stop.Took, stop.Name = false, 6*time.Second, "another"
		stop.Steps = []nodereport.Step{{Name: "stop web", Detail: "killed", Took: time.Hour}}
		got := w.send(t, stop)
		if len(got) != 1 || got[0].Open || got[0].Name != "mine" || got[0].Took[hop.Node] != 6*time.Second || len(got[0].Steps) != 1 ||
			got[0].Steps[0].Took != 6*time.Second {
			t.Errorf("%+v", got)
		}
		if got := w.send(t, stop); len(got) != 1 {
			t.Errorf("it was recorded again: %+v", got)
		}
	})
}
