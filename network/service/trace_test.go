package service

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/network/nettest"
)

// endpointSlice returns an EndpointSlice. An address that begins with ! is not ready.
func endpointSlice(name string, rev int64, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID("u-" + name),
		ResourceVersion: fmt.Sprint(rev)}}
	for _, a := range addresses {
		a, isNotReady := strings.CutPrefix(a, "!")
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a},
			Conditions: discoveryv1.EndpointConditions{Ready: new(!isNotReady)}})
	}
	return s
}

func svc(rev int64, ip string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "s", UID: "u-s", ResourceVersion: fmt.Sprint(rev)},
		Spec: corev1.ServiceSpec{ClusterIP: ip}}
}

func newTracer(records *hop.Recorder) *tracer {
	t := &tracer{record: records.Update, node: "n"}
	t.skipPresent()
	return t
}

func TestChangesOfTrafficAreRecorded(t *testing.T) {
	relabelled := endpointSlice("a", 2, "10.0.0.1")
	relabelled.Labels = map[string]string{"x": "y"}
	for _, c := range []struct {
		name     string
		old, now kind.Object
		deleted  bool
		want     bool
	}{
		{"a new slice", nil, endpointSlice("a", 2, "10.0.0.1"), false, true},
		{"a new slice without endpoints", nil, endpointSlice("a", 2), false, false},
		{"an endpoint that is not ready", endpointSlice("a", 1), endpointSlice("a", 2, "!10.0.0.1"), false, false},
		{"an endpoint becomes ready", endpointSlice("a", 1, "!10.0.0.1"), endpointSlice("a", 2, "10.0.0.1"), false, true},
		{"an endpoint is no longer ready", endpointSlice("a", 1, "10.0.0.1"), endpointSlice("a", 2, "!10.0.0.1"), false, true},
		{"labels", endpointSlice("a", 1, "10.0.0.1"), relabelled, false, false},
		{"a slice is deleted", endpointSlice("a", 1, "10.0.0.1"), endpointSlice("a", 2, "10.0.0.1"), true, false},
		{"a new Service", nil, svc(2, "10.96.0.1"), false, true},
		{"the same Service", svc(1, "10.96.0.1"), svc(2, "10.96.0.1"), false, false},
		{"another address", svc(1, "10.96.0.1"), svc(2, "10.96.0.2"), false, true},
		{"a Node", nil, &corev1.Node{}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := newTracer(hop.NewRecorder(10))
			e := client.Event{Object: c.now, Deleted: c.deleted, Rev: 2}
			if c.old != nil {
				e.Old = c.old
			}
			tr.note(e)
			if got := len(tr.take()) == 1; got != c.want {
				t.Errorf("recorded: %v", got)
			}
		})
	}
}

func TestARecordEndsWhenTheRulesAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := hop.NewRecorder(10)
		tr := newTracer(records)
		tr.note(client.Event{Object: endpointSlice("a", 5, "10.0.0.1"), Rev: 5})
		time.Sleep(4 * time.Millisecond)
		old, now := endpointSlice("a", 5, "10.0.0.1"), endpointSlice("a", 6, "10.0.0.1", "10.0.0.2")
		tr.note(client.Event{Object: now, Old: old, Rev: 6}) // merged
		time.Sleep(6 * time.Millisecond)
		for range 3 {
			begin, changes := time.Now(), tr.take()
			time.Sleep(time.Millisecond)
			err := errors.New("no table\x1b[1m")
			tr.written(changes, begin, err)
			tr.keep(changes)
			if got := records.Of("u-a"); len(got) != 1 || !got[0].Open || got[0].Error != "no table?[1m" ||
				got[0].Took[hop.Network] != 11*time.Millisecond {
				t.Fatalf("%+v", got)
			}
		}
		begin, changes := time.Now(), tr.take()
		time.Sleep(2 * time.Millisecond)
		tr.written(changes, begin, nil)
		got := records.Of("u-a")
		if len(got) != 1 || got[0].Open || got[0].Error != "" || got[0].Rev != 6 || got[0].CauseUID != "u-a" || got[0].CauseRev != 6 ||
			got[0].User != "system:node:n" || got[0].Resource != "endpointslices" || got[0].Verb != hop.Program ||
			got[0].Took[hop.Network] != 15*time.Millisecond || got[0].Wait[hop.Network] != 13*time.Millisecond ||
			got[0].Steps[0].Took != 2*time.Millisecond {
			t.Errorf("%+v", got)
		}
		if tr.take() != nil {
			t.Error("it is still pending")
		}
	})
}

// TestRecordSaysThatDNSAnswers checks that the record of a Service has a step for the DNS server if it answers, and only then.
func TestRecordSaysThatDNSAnswers(t *testing.T) {
	for _, isAnswered := range []bool{false, true} {
		records := hop.NewRecorder(10)
		tr := newTracer(records)
		tr.answers = func(kind.Object) bool { return isAnswered }
		tr.note(client.Event{Object: svc(2, "10.96.0.1"), Rev: 2})
		changes := tr.take()
		tr.written(changes, time.Now(), errors.New("no table"))
		tr.written(changes, time.Now(), nil)
		var names []string
		for _, s := range records.Of("u-s")[0].Steps {
			names = append(names, s.Name)
		}
		want := "rules"
		if isAnswered {
			want = "dns rules"
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("answered %t: steps %q, want %q", isAnswered, got, want)
		}
	}
}

// TestForWhichServiceDNSIsAsked checks that a change of endpoints counts for the name of a headless Service only.
func TestForWhichServiceDNSIsAsked(t *testing.T) {
	services, asked := nettest.NewView(), ""
	p := &Proxy{Config: Config{Services: services, Answers: func(namespace, name string) bool {
		asked = namespace + "/" + name
		return true
	}}}
	slice := endpointSlice("s-x", 2, "10.0.0.1")
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "s"}
	if p.isAnswered(slice) || asked != "" {
		t.Errorf("asked for %q, which does not exist", asked)
	}
	services.Put(svc(1, "10.96.0.1"))
	if p.isAnswered(slice) || asked != "" {
		t.Errorf("asked for %q, which is not headless", asked)
	}
	services.Put(svc(1, corev1.ClusterIPNone))
	if !p.isAnswered(slice) || asked != "d/s" {
		t.Errorf("asked for %q", asked)
	}
	if asked = ""; !p.isAnswered(svc(1, "10.96.0.1")) || asked != "d/s" {
		t.Errorf("asked for %q", asked)
	}
}

func TestWhatWasThereBeforeIsNotRecorded(t *testing.T) {
	view := nettest.NewView()
	view.Put(endpointSlice("b", 7, "10.0.0.1"))
	view.Put(endpointSlice("a", 3, "10.0.0.1"))
	tr := &tracer{record: func(hop.Record) {}, node: "n"}
	tr.skipPresent(view)
	for _, s := range []*discoveryv1.EndpointSlice{endpointSlice("b", 7, "10.0.0.1"), endpointSlice("a", 3, "10.0.0.1")} {
		tr.note(client.Event{Object: s, Rev: map[string]int64{"a": 3, "b": 7}[s.Name]})
	}
	if got := tr.take(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	tr.note(client.Event{Object: endpointSlice("c", 8, "10.0.0.1"), Rev: 8})
	tr.note(client.Event{Object: endpointSlice("c", 8, "10.0.0.1"), Rev: 8}) // once more, after a gap
	if got := tr.take(); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestPendingRecordsAreBounded(t *testing.T) {
	tr := newTracer(hop.NewRecorder(10))
	for i := range int64(3 * maxTraced) {
		tr.note(client.Event{Object: endpointSlice(fmt.Sprint(i), i+1, "10.0.0.1"), Rev: i + 1})
	}
	if got := tr.take(); len(got) != maxTraced {
		t.Errorf("%d are pending", len(got))
	}
	nobody := &tracer{}
	nobody.skipPresent()
	nobody.note(client.Event{Object: endpointSlice("a", 1, "10.0.0.1"), Rev: 1})
	if nobody.take() != nil {
		t.Error("something was recorded for nobody")
	}
}

// TestNoRecordStaysOpen checks that the records of rules that could not be written end with their objects, however many there are.
func TestNoRecordStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := hop.NewRecorder(1 << 16)
		tr := newTracer(records)
		rev := int64(0)
		note := func(name string, isDeleted bool) {
			rev++
			tr.note(client.Event{Object: endpointSlice(name, rev, "10.0.0.1"), Deleted: isDeleted, Rev: rev})
		}
		for i := range maxTraced {
			note(fmt.Sprint("first-", i), false)
		}
		changes := tr.take()
		for i := range maxTraced {
			note(fmt.Sprint("second-", i), false)
		}
		for round := range 5 {
			tr.written(changes, time.Now(), errors.New("no table"))
			tr.keep(changes)
			if len(tr.pending) > 2*maxTraced {
				t.Fatalf("%d changes are pending", len(tr.pending))
			}
			changes = tr.take()
			for i := range maxTraced {
				note(fmt.Sprint("round-", round, "-", i), false)
			}
		}
		tr.written(changes, time.Now(), errors.New("no table"))
		tr.keep(changes)
		time.Sleep(time.Second)
		note("first-0", true)
		if got := records.Of("u-first-0"); len(got) != 1 || got[0].Open || got[0].Error == "" || got[0].Took[hop.Network] != time.Second {
			t.Errorf("after it was deleted: %+v", got)
		}
		tr.written(tr.take(), time.Now(), nil)
		if open := records.Select(func(r *hop.Record) bool { return r.Open }); len(open) > 0 {
			t.Errorf("%d records are still open", len(open))
		}
	})
}
