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

// TestManyWatchesReadTheRecordsSeldom checks that the version of all traces, which every watch asks for all the time, is made seldom, and
// that it changes soon after a record was added.
func TestManyWatchesReadTheRecordsSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, records := 0, hop.NewRecorder(100)
		s := &Source{Records: func() *hop.Recorder { reads++; return records }}
		before := s.Version()
		records.Add(hop.Record{UID: "u", Rev: 1, Verb: "create", Resource: "pods", Start: time.Now()})
		for range 1000 {
			for range 64 {
				s.Version()
			}
			time.Sleep(time.Millisecond)
		}
		if reads > 6 || s.Version() == before {
			t.Errorf("the records were read %d times in a second, and the version has changed: %v", reads, s.Version() != before)
		}
	})
}
