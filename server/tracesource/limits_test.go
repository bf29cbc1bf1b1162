package tracesource

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/hop"
)

// TestOneClientDoesNotTakeAllTraces checks that whoever asks for many traces at once, which take long, does not make others wait, also as
// many service accounts.
func TestOneClientDoesNotTakeAllTraces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimits(nil)
		for i := range 100 {
			go func() {
				leave, err := l.enter(t.Context(), fmt.Sprint("system:serviceaccount:mallory:", i))
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Minute)
				leave()
			}()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(l.slots); n != maxTracesOfClient {
			t.Errorf("%d traces are made for one client", n)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		leave, err := l.enter(ctx, "alice")
		if err != nil || ctx.Err() != nil {
			t.Fatalf("another user waits: %v", err)
		}
		leave()
		if _, err := l.enter(ctx, "system:serviceaccount:mallory:x"); !apierrors.IsTooManyRequests(err) {
			t.Errorf("the request that is not answered in time: %v", err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if len(l.clients) != 0 || len(l.slots) != 0 {
			t.Errorf("%d clients and %d traces are left", len(l.clients), len(l.slots))
		}
	})
}

// TestVersion checks that the version of all traces, which every watch asks for all the time, changes with what is recorded, and costs
// nothing.
func TestVersion(t *testing.T) {
	records := hop.NewRecorder(100)
	s := &Source{Records: func() *hop.Recorder { return records }}
	before := s.Version()
	lease := hop.Record{UID: "l", Rev: 1, Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Start: time.Now()}
	if records.Add(lease); s.Version() != before || before == 0 {
		t.Error("the renewal of a Lease is a change")
	}
	pull := hop.Record{UID: "u", Rev: 1, Verb: hop.Pull, Resource: "pods", User: "system:node:n", Start: time.Now(), Open: true}
	for _, change := range []func(){func() { records.Add(hop.Record{UID: "u", Rev: 1, Verb: "create", Resource: "pods"}) },
		func() { records.Update(pull) }, func() { pull.Error = "no"; records.Update(pull) },
		func() { records.Restore(hop.Record{UID: "v", Rev: 2, Verb: "create", Resource: "pods"}) }} {
		if change(); s.Version() == before {
			t.Error("a change does not change the version")
		}
		before = s.Version()
	}
	if n := testing.AllocsPerRun(100, func() { s.Version() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
