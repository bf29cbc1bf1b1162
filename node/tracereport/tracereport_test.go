package tracereport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/nodereport"
)

// fakeServer receives reports.
type fakeServer struct {
	client.Writer
	fail    error
	calls   int
	reports []*nodereport.NodeReport
	at      []time.Time
}

func (s *fakeServer) Create(_ context.Context, gr schema.GroupResource, o kind.Object) (kind.Object, error) {
	if gr != nodereport.Resource() {
		return nil, errors.New("no such resource")
	}
	s.calls++
	if s.fail != nil {
		return nil, s.fail
	}
	s.reports, s.at = append(s.reports, o.(*nodereport.NodeReport)), append(s.at, time.Now())
	return nil, nil
}

func (s *fakeServer) names() (out []string) {
	for _, r := range s.reports {
		for _, x := range r.Records {
			out = append(out, x.Name)
		}
	}
	return out
}

func record(i int) hop.Record {
	return hop.Record{UID: types.UID(fmt.Sprint(i)), Rev: 1, Verb: hop.Pull, Resource: "pods", Name: fmt.Sprint(i), Start: time.Now()}
}

// play runs a reporter in virtual time.
func play(t *testing.T, s *fakeServer, script func(r *Reporter, log *strings.Builder)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		r := New("n", s, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.Run(ctx) }()
		script(r, &log)
		stop()
		<-done
	})
}

func TestRecordsAreSentTogether(t *testing.T) {
	s := &fakeServer{}
	play(t, s, func(r *Reporter, _ *strings.Builder) {
		begin := time.Now()
		r.Record(record(1))
		time.Sleep(100 * time.Millisecond)
		r.Record(record(2))
		time.Sleep(time.Second)
		synctest.Wait()
		if len(s.reports) != 1 || len(s.reports[0].Records) != 2 || s.at[0].Sub(begin) != delay || !s.reports[0].Sent.Equal(s.at[0]) ||
			s.reports[0].Node != "n" || !s.reports[0].AgentStarted.Equal(begin) {
			t.Fatalf("%+v at %v", s.reports, s.at)
		}
		// Enough for a report does not wait.
		begin = time.Now()
		for i := range 3 * batch / 2 {
			r.Record(record(i))
		}
		synctest.Wait()
		if len(s.reports) < 2 || s.at[1] != begin || len(s.reports[1].Records) != batch {
			t.Fatalf("%d reports at %v", len(s.reports), s.at)
		}
		// The rest was recorded while the first of them were sent, so it came with one report or two.
		time.Sleep(delay)
		synctest.Wait()
		rest := 0
		for _, report := range s.reports[2:] {
			rest += len(report.Records)
		}
		if rest != batch/2 || len(s.reports) > 4 {
			t.Fatalf("%d records in %d reports at %v", rest, len(s.reports)-2, s.at)
		}
		calls := s.calls
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.calls != calls {
			t.Errorf("%d calls while nothing happened", s.calls-calls)
		}
	})
}

func TestTheEndOfWorkReplacesItsBeginning(t *testing.T) {
	s := &fakeServer{}
	play(t, s, func(r *Reporter, _ *strings.Builder) {
		open := record(1)
		open.Open = true
		other := open
		other.Start = open.Start.Add(1)
		r.Record(open)
		r.Record(other)
		open.Open, open.Error = false, "x"
		r.Record(open)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(s.reports) != 1 || len(s.reports[0].Records) != 2 || s.reports[0].Records[0].Open || s.reports[0].Records[0].Error != "x" ||
			!s.reports[0].Records[1].Open {
			t.Errorf("%+v", s.reports)
		}
	})
}

func TestSomeRecordsAreKeptWhileTheServerIsAway(t *testing.T) {
	s := &fakeServer{fail: errors.New("connection refused")}
	play(t, s, func(r *Reporter, log *strings.Builder) {
		for i := range 2 * maxKept {
			r.Record(record(i))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.calls < 40 || s.calls > 150 {
			t.Errorf("%d tries in an hour", s.calls)
		}
		if len(r.records) > maxKept {
			t.Errorf("%d are kept", len(r.records))
		}
		s.fail = nil
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		got := s.names()
		if len(got) != maxKept || got[0] != fmt.Sprint(maxKept) || got[maxKept-1] != fmt.Sprint(2*maxKept-1) {
			t.Errorf("%d records, from %s to %s", len(got), got[0], got[len(got)-1])
		}
		if s.reports[0].Dropped != maxKept || s.reports[1].Dropped != 0 || log.Len() > 0 {
			t.Errorf("dropped %d, then %d; log:\n%s", s.reports[0].Dropped, s.reports[1].Dropped, log)
		}
	})
}

func TestAServerThatTakesNoReportsIsSeldomAsked(t *testing.T) {
	for _, refusal := range []error{
		apierrors.NewNotFound(nodereport.Resource(), ""), apierrors.NewForbidden(nodereport.Resource(), "", nil),
		apierrors.NewGenericServerResponse(404, "POST", schema.GroupResource{}, "", "404 page not found", 0, true),
		apierrors.NewMethodNotSupported(nodereport.Resource(), "create"),
	} {
		s := &fakeServer{fail: refusal}
		play(t, s, func(r *Reporter, log *strings.Builder) {
			for i := range 24 * 3600 {
				r.Record(record(i))
				time.Sleep(time.Second)
			}
			synctest.Wait()
			if s.calls < 24 || s.calls > 48 || len(r.records) > 0 || log.Len() > 0 {
				t.Errorf("%v: %d calls in a day, %d kept, log %q", refusal, s.calls, len(r.records), log)
			}
			s.fail = nil
			time.Sleep(refusedPause)
			r.Record(record(1))
			time.Sleep(time.Second)
			synctest.Wait()
			if len(s.reports) != 1 {
				t.Errorf("%v: %d reports afterwards", refusal, len(s.reports))
			}
		})
	}
}

func TestAServerMayAskForPatience(t *testing.T) {
	s := &fakeServer{fail: apierrors.NewTooManyRequests("later", 30)}
	play(t, s, func(r *Reporter, _ *strings.Builder) {
		r.Record(record(1))
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if s.calls != 1 {
			t.Errorf("%d calls", s.calls)
		}
		s.fail = nil
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(s.names()) != 1 {
			t.Errorf("sent %v", s.names())
		}
	})
}

func TestWhatTheServerCannotReadIsNotSentAgain(t *testing.T) {
	s := &fakeServer{fail: apierrors.NewBadRequest("no")}
	play(t, s, func(r *Reporter, _ *strings.Builder) {
		r.Record(record(1))
		time.Sleep(time.Second)
		synctest.Wait()
		s.fail = nil
		r.Record(record(2))
		time.Sleep(time.Second)
		synctest.Wait()
		if got := s.names(); len(got) != 1 || got[0] != "2" || s.reports[0].Dropped != 1 {
			t.Errorf("sent %v, %d dropped", got, s.reports[0].Dropped)
		}
	})
}
