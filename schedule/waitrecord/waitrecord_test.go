package waitrecord

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
)

func pod(name string) *corev1.Pod { return podIn("d", name) }

func podIn(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("u-" + name), ResourceVersion: "7"}}
}

// attempt returns the record of an attempt that began to wait at since and has decided about the Pod at revision 9.
func attempt(name string, since time.Time) hop.Record {
	rec := hop.Record{UID: types.UID("u-" + name), Rev: 9, Verb: hop.ScheduleAttempt, Resource: "pods", Namespace: "d", Name: name,
		User: "system:kube-scheduler", Start: since, CauseUID: types.UID("u-" + name), CauseRev: 7}
	rec.Took[hop.Schedule] = time.Since(since)
	return rec
}

// play runs a recorder in virtual time.
func play(t *testing.T, script func(r *Recorder, records *hop.Recorder, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		records := hop.NewRecorder(10000)
		r := New(records.Update)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.Run(ctx) }()
		stop := func() { cancel(); <-done }
		script(r, records, stop)
		stop()
	})
}

func TestPodThatWaitsInTheQueueHasAnOpenRecord(t *testing.T) {
	play(t, func(r *Recorder, records *hop.Recorder, _ func()) {
		start := time.Now()
		r.Queued(pod("slow"), start, "held back")
		r.Queued(pod("quick"), start, "")
		r.End(attempt("quick", start))
		time.Sleep(Delay - 1)
		synctest.Wait()
		if got := records.Of("u-slow"); len(got) != 0 {
			t.Fatalf("too early: %+v", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		got := records.Of("u-slow")
		if len(got) != 1 || !got[0].Open || got[0].Rev != 7 || got[0].CauseUID != "u-slow" || got[0].CauseRev != 7 ||
			got[0].Name != "slow" || !got[0].Start.Equal(start) || got[0].Took[hop.Schedule] != Delay ||
			got[0].Wait[hop.Schedule] != Delay || len(got[0].Steps) != 1 || got[0].Steps[0].Name != "queue" ||
			got[0].Steps[0].Detail != "held back" {
			t.Fatalf("%+v", got)
		}
		if quick := records.Of("u-quick"); len(quick) != 1 || quick[0].Open {
			t.Errorf("%+v", quick)
		}
		// The attempt that follows takes the place of the open record, although the Pod has changed since.
		r.End(attempt("slow", start))
		if got = records.Of("u-slow"); len(got) != 1 || got[0].Open || got[0].Took[hop.Schedule] != 2*time.Second-1 {
			t.Errorf("%+v", got)
		}
	})
}

func TestAttemptThatWaitsForAPluginIsOpenAtOnce(t *testing.T) {
	play(t, func(r *Recorder, records *hop.Recorder, _ func()) {
		start := time.Now()
		for _, isLate := range []bool{false, true} {
			name := fmt.Sprint("late-", isLate)
			r.Queued(pod(name), start, "")
			if isLate { // then there is an open record of the queue
				time.Sleep(2 * time.Second)
				synctest.Wait()
			}
			waits := attempt(name, start)
			waits.Steps = []hop.Step{{Hop: hop.Schedule, Name: "prebind"}}
			r.Waits(waits)
			got := records.Of(types.UID("u-" + name))
			if len(got) != 1 || !got[0].Open || got[0].Steps[0].Name != "prebind" {
				t.Errorf("%s: %+v", name, got)
			}
			r.End(attempt(name, start))
			if got := records.Of(types.UID("u-" + name)); len(got) != 1 || got[0].Open {
				t.Errorf("%s: %+v", name, got)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if open := records.Select(func(r *hop.Record) bool { return r.Open }); len(open) > 0 {
			t.Errorf("%+v", open)
		}
	})
}

func TestNoRecordStaysOpen(t *testing.T) {
	play(t, func(r *Recorder, records *hop.Recorder, stop func()) {
		for _, name := range []string{"deleted", "left"} {
			r.Queued(pod(name), time.Now(), "")
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		r.Forget("u-deleted", "it was deleted")
		if got := records.Of("u-deleted"); len(got) != 1 || got[0].Open || got[0].Error != "it was deleted" ||
			got[0].Took[hop.Schedule] != 10*time.Second || got[0].Wait[hop.Schedule] != 10*time.Second {
			t.Errorf("%+v", got)
		}
		stop()
		if got := records.Of("u-left"); len(got) != 1 || got[0].Open || got[0].Error != "the scheduler has stopped" {
			t.Errorf("%+v", got)
		}
	})
}

func TestOpenRecordsAreBounded(t *testing.T) {
	play(t, func(r *Recorder, records *hop.Recorder, _ func()) {
		start := time.Now()
		for i := range 3 * MaxOpen {
			r.Queued(podIn(fmt.Sprint("n-", i%8), fmt.Sprint(i)), start, "")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		open := func() int { return len(records.Select(func(r *hop.Record) bool { return r.Open })) }
		if n := open(); n != MaxOpen || len(r.pods) != MaxOpen || len(r.arrived) != 0 {
			t.Errorf("%d are open, %d Pods and %d arrivals are kept", n, len(r.pods), len(r.arrived))
		}
		r.Waits(attempt("one more", start))
		if n := open(); n != MaxOpen || len(r.pods) != MaxOpen {
			t.Errorf("%d are open, %d Pods are kept", n, len(r.pods))
		}
		for i := range 3 * MaxOpen {
			r.End(attempt(fmt.Sprint(i), start))
		}
		if n := open(); n != 0 || r.open != 0 || len(r.openOf) != 0 || len(r.pods) != 0 {
			t.Errorf("%d are open, counted %d, of namespaces %v, %d Pods are kept", n, r.open, r.openOf, len(r.pods))
		}
		r.Waits(attempt("one more", start))
		if n := open(); n != 1 {
			t.Errorf("%d are open", n)
		}
	})
}

// TestOneNamespaceLeavesRoomForOthers checks that Pods with scheduling gates, which anybody can make, do not hide how long others wait.
func TestOneNamespaceLeavesRoomForOthers(t *testing.T) {
	play(t, func(r *Recorder, records *hop.Recorder, _ func()) {
		start := time.Now()
		for i := range 2 * MaxOpen {
			r.Queued(podIn("flood", fmt.Sprint("gated-", i)), start, "")
		}
		r.Queued(podIn("shop", "web"), start, "")
		time.Sleep(time.Minute)
		synctest.Wait()
		waits := attempt("db", start)
		waits.Namespace = "shop"
		r.Waits(waits)
		flood := records.Select(func(r *hop.Record) bool { return r.Open && r.Namespace == "flood" })
		if web, db := records.Of("u-web"), records.Of("u-db"); len(web) != 1 || len(db) != 1 || len(flood) != maxOfNamespace {
			t.Errorf("%+v, %+v, %d others", web, db, len(flood))
		}
	})
}

func TestNilRecorderDoesNothing(t *testing.T) {
	r := New(nil)
	r.Queued(pod("a"), time.Now(), "")
	r.Waits(attempt("a", time.Now()))
	r.End(attempt("a", time.Now()))
	r.Forget("u-a", "")
	r.Run(t.Context())
}
