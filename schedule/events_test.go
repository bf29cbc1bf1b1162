package schedule

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

// counter counts what is created.
type counter struct {
	client.Writer
	n atomic.Int64
}

func (c *counter) Create(_ context.Context, _ schema.GroupResource, o kind.Object) (kind.Object, error) {
	c.n.Add(1)
	return o, nil
}

// TestEventsWait writes Events when there are no pods to place, when they have waited for long enough, and when they are many.
func TestEventsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &counter{}
		e := newEvents(w, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { e.run(ctx); close(done) }()
		pod := func(i int) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: types.UID(fmt.Sprint(i))}}
		}
		say := func(n int) {
			for i := range n {
				e.say(pod(i), "s", corev1.EventTypeNormal, "Scheduled", "Binding", "")
			}
		}
		expect := func(what string, n int64) {
			t.Helper()
			if synctest.Wait(); w.n.Load() != n {
				t.Errorf("%s: %d Events are written, want %d", what, w.n.Load(), n)
			}
		}
		e.busy(true)
		say(10)
		expect("while pods are placed", 0)
		e.busy(false)
		expect("once there are none", 10)
		say(1)
		expect("while there are none", 11)
		e.busy(true)
		say(10)
		for i := range 3 {
			e.say(pod(i), "s", corev1.EventTypeWarning, "FailedScheduling", "Scheduling", "")
		}
		time.Sleep(complaintPatience / 2)
		expect("soon after", 11)
		time.Sleep(complaintPatience)
		expect("what is wrong does not wait behind news", 14)
		time.Sleep(newsPatience)
		expect("long after", 24)
		say(eventQueue)
		synctest.Wait()
		if n := w.n.Load(); n < eventQueue/2 {
			t.Errorf("of very many Events %d are written at once, want at least half", n)
		}
		stop()
		<-done
	})
}

// recorder keeps the words and counts of the Events that are written.
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

// TestEventsSayWhatIsNew: what happens again is counted, and a new reason is said although the pod fails as before.
func TestEventsSayWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recorder{}
		e := newEvents(w, slog.New(slog.DiscardHandler))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "1"}}
		for _, words := range []string{"1 unschedulable", "1 unschedulable", "1 full", "1 full", "1 unschedulable"} {
			if err := e.write(t.Context(), e.event(pod, "s", corev1.EventTypeWarning, "FailedScheduling", "Scheduling", words)); err != nil {
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
