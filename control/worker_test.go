package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/client"
	"proa.dev/hop"
)

// TestReconcilesAreRecorded checks that a reconcile that writes or fails has a record with the write that caused it, the
// delivery time of that write's event, the time in the work queue and the time of the work itself, and that a retry has the
// back-off. A reconcile that neither writes nor fails has no record.
func TestReconcilesAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := hop.NewRecorder(100)
		m := NewMetrics()
		m.Recorder = recorder
		f := &eventView{events: make(chan client.Event)}
		nodes, pods := schema.GroupResource{Resource: "nodes"}, schema.GroupResource{Resource: "pods"}
		fails := 2
		ctl := Controller{Name: "test-controller", For: nodes,
			Reconcile: func(ctx context.Context, _ *Cluster, k Key) (time.Duration, error) {
				switch k.Name {
				case "busy":
					time.Sleep(3 * time.Second)
				case "writer":
					time.Sleep(time.Second)
					client.WriteSetOf(ctx).Add(pods, 9)
				case "failing":
					if fails--; fails >= 0 {
						return 0, errors.New("not yet\nthe rest is a stack")
					}
					client.WriteSetOf(ctx).Add(pods, 11)
				}
				return 0, nil
			}}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- Run(ctx, slog.New(slog.DiscardHandler), viewClient{view: f}, ctl, m) }()
		event := func(name string, rev int64) {
			o := &corev1.Node{}
			o.Name, o.UID = name, "uid-of-node"
			f.events <- client.Event{Rev: rev, Object: o}
			synctest.Wait()
		}
		committed := hop.Record{UID: "uid-of-node", Rev: 5, Verb: "update", Resource: "nodes", Start: time.Now()}
		committed.Took[hop.Commit] = 100 * time.Millisecond
		recorder.Add(committed)
		time.Sleep(300 * time.Millisecond)
		event("busy", 4) // takes three seconds and writes nothing
		event("writer", 5)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		event("failing", 6)
		time.Sleep(time.Second)
		synctest.Wait()
		got := recorder.Select(func(r *hop.Record) bool { return r.Verb == hop.Reconcile })
		if len(got) != 4 {
			t.Fatalf("%d records: %+v", len(got), got)
		}
		w := got[0]
		if w.UID != "uid-of-node" || w.Rev != 5 || w.CauseUID != w.UID || w.CauseRev != 5 || w.User != "test-controller" ||
			w.Name != "writer" || w.Resource != "nodes" || w.Error != "" {
			t.Errorf("%+v", w)
		}
		if w.Took[hop.Watch] != 200*time.Millisecond || w.Wait[hop.Control] != 3*time.Second || w.Took[hop.Control] != 4*time.Second ||
			!w.Start.Equal(committed.End()) {
			t.Errorf("took %v, waited %v", w.Took, w.Wait)
		}
		for i, want := range []time.Duration{0, firstDelay, 2 * firstDelay} {
			r := got[i+1]
			if r.Wait[hop.Control] != want || r.CauseRev != 6 || r.Took[hop.Watch] != 0 {
				t.Errorf("attempt %d: %+v", i, r)
			}
			if failed := i < 2; failed != (r.Error == "not yet") {
				t.Errorf("attempt %d: error %q", i, r.Error)
			}
			isBackOff := func(s hop.Step) bool { return s.Name == "back-off" && s.Wait == want }
			if retried := slices.ContainsFunc(r.Steps, isBackOff); retried != (i > 0) {
				t.Errorf("attempt %d: %+v", i, r.Steps)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestErrorsAboutSecretsAreNotQuoted checks that the record of a reconcile does not contain what an error quotes of a Secret.
func TestErrorsAboutSecretsAreNotQuoted(t *testing.T) {
	invalid := field.ErrorList{field.Invalid(field.NewPath("data"), "hunter2", "too short")}
	if got := shortError(apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "s", invalid)); got != "Invalid" {
		t.Error(got)
	}
	secrets := schema.GroupResource{Resource: "secrets"}
	if got := shortError(fmt.Errorf("write: %w", apierrors.NewForbidden(secrets, "s", errors.New("hunter2")))); got != "Forbidden" {
		t.Error(got)
	}
	if got := shortError(apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("newer"))); got !=
		`Conflict on pods: Operation cannot be fulfilled on pods "p": newer` {
		t.Error(got)
	}
	several := errors.Join(apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p"),
		fmt.Errorf("write: %w", apierrors.NewForbidden(secrets, "s", errors.New("hunter2"))))
	if got := shortError(several); got != "Forbidden" {
		t.Error(got)
	}
}

// TestCauseHasTheTimeOfItsEvent checks that a cause has the time at which the view got the event, and the present if the view does not
// say.
func TestCauseHasTheTimeOfItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for at, want := range map[time.Time]time.Time{now.Add(-time.Second): now.Add(-time.Second), {}: now} {
			ev := client.Event{Object: &corev1.Node{}, Rev: 5, At: at}
			if got := causeOf(schema.GroupResource{Resource: "nodes"}, ev); !got.at.Equal(want) || got.rev != 5 {
				t.Errorf("%v: the cause is of %v, want %v", at, got.at, want)
			}
		}
	})
}
