package eventseries

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/kind"
)

// counter is a client that counts created objects.
type counter struct {
	client.Writer
	n atomic.Int64
}

func (c *counter) Create(_ context.Context, _ schema.GroupResource, o kind.Object) (kind.Object, error) {
	c.n.Add(1)
	return o, nil
}

// TestEventsAreDelayed checks that Events are written when the scheduler is idle, when they were delayed for long enough, and
// when there are many.
func TestEventsAreDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &counter{}
		e := New(w, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { e.Run(ctx); close(done) }()
		pod := func(i int) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: types.UID(fmt.Sprint(i))}}
		}
		record := func(n int) {
			for i := range n {
				e.Record(pod(i), Note{Controller: "s", Type: corev1.EventTypeNormal, Reason: "Scheduled", Action: "Binding"})
			}
		}
		expect := func(what string, n int64) {
			t.Helper()
			if synctest.Wait(); w.n.Load() != n {
				t.Errorf("%s: %d Events are written, want %d", what, w.n.Load(), n)
			}
		}
		e.SetBusy(true)
		record(10)
		expect("while the scheduler is busy", 0)
		e.SetBusy(false)
		expect("once it is idle", 10)
		record(1)
		expect("while it is idle", 11)
		e.SetBusy(true)
		record(10)
		for i := range 3 {
			e.Record(pod(i), Note{Controller: "s", Type: corev1.EventTypeWarning, Reason: "FailedScheduling", Action: "Scheduling"})
		}
		time.Sleep(warningDelay / 2)
		expect("soon after", 11)
		time.Sleep(warningDelay)
		expect("warnings do not wait for normal Events", 14)
		time.Sleep(normalDelay)
		expect("long after", 24)
		record(queueSize)
		synctest.Wait()
		if n := w.n.Load(); n < queueSize/2 {
			t.Errorf("of very many Events %d are written at once, want at least half", n)
		}
		stop()
		<-done
	})
}

// recorder is a client that keeps the messages and counts of written Events.
type recorder struct {
	client.Writer
	words []string
}

func (r *recorder) Create(_ context.Context, _ schema.GroupResource, o kind.Object) (kind.Object, error) {
	r.words = append(r.words, o.(*corev1.Event).Message)
	return o, nil
}

func (r *recorder) Update(_ context.Context, _ schema.GroupResource, o kind.Object, _ string) (kind.Object, error) {
	ev := o.(*corev1.Event)
	r.words = append(r.words, fmt.Sprintf("%s x%d", ev.Message, ev.Series.Count))
	return o, nil
}

// TestEventSeries checks that repeated Events are counted, and that a new message begins a new series.
func TestEventSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recorder{}
		e := New(w, slog.New(slog.DiscardHandler))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}}
		for _, words := range []string{"1 unschedulable", "1 unschedulable", "1 full", "1 full", "1 unschedulable"} {
			if err := e.write(t.Context(), e.event(pod, Note{
				Controller: "s", Type: corev1.EventTypeWarning, Reason: "FailedScheduling", Action: "Scheduling",
				Message: words,
			})); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		want := []string{"1 unschedulable", "1 unschedulable x2", "1 full", "1 full x2", "1 unschedulable"}
		if !slices.Equal(w.words, want) {
			t.Errorf("written: %q, want %q", w.words, want)
		}
	})
}
