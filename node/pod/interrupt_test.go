package pod

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/fact"
	"proa.dev/node/interruption"
	"proa.dev/node/podstate"
)

// recordedBeforeStop fakes the probes, which are called before the first container is stopped, and the API. It notes what the
// record of interruptions has at that moment.
type recordedBeforeStop struct {
	Probes
	Statuses
	records  interruption.Records
	stops    int
	recorded bool
}

func (r *recordedBeforeStop) Sync(p *corev1.Pod, _ *fact.Pod) {
	r.stops++
	s, err := r.records.Of(p.UID)
	r.recorded = err == nil && s.Has("1")
}
func (r *recordedBeforeStop) Of(types.UID, string) podstate.Health { return podstate.Health{} }
func (r *recordedBeforeStop) Terminating(types.UID)                {}
func (r *recordedBeforeStop) Write(_ context.Context, p *corev1.Pod, _ *corev1.PodStatus) (*corev1.Pod, error) {
	return p, nil
}

// TestInterruptionIsRecordedBeforeTheFirstStop checks that an agent that is killed in between finds the record. If nothing can be
// recorded, nothing is stopped, whether the Pod continues later or ends.
func TestInterruptionIsRecordedBeforeTheFirstStop(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	for name, stop := range map[string]func(*worker, *fact.Pod){
		"the Pod continues later": func(w *worker, f *fact.Pod) { w.pause(t.Context(), p, f, &stopOrder{time.Minute}) },
		"the Pod ends": func(w *worker, f *fact.Pod) {
			w.end(t.Context(), p, f, false, podstate.NodeShutdown(nil), &stopOrder{time.Minute})
		},
	} {
		for _, full := range []bool{false, true} {
			dir := t.TempDir()
			if full {
				if err := os.WriteFile(filepath.Join(dir, "interrupted"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := &recordedBeforeStop{records: interruption.RecordsIn(dir)}
			m := New(Config{Interruptions: r.records, Probes: r, Statuses: r, HostIPs: func() []netip.Addr { return nil }})
			// the work counts as running, so that no container is stopped here
			w := &worker{m: m, log: slog.New(slog.DiscardHandler), busy: map[string]context.CancelFunc{workEnd: func() {}}}
			stop(w, &fact.Pod{UID: "u", Containers: []fact.Container{{ID: "1", Name: "c", State: fact.Running}}})
			switch {
			case full && r.stops > 0:
				t.Errorf("%s: it is stopped without a record", name)
			case !full && (r.stops != 1 || !r.recorded):
				t.Errorf("%s: it is stopped %d times, recorded before: %v", name, r.stops, r.recorded)
			}
		}
	}
}

// TestRecordedRunsAreInterrupted checks that the next agent marks the runs in the record as interrupted, and no others. A record
// that names no remaining run is removed.
func TestRecordedRunsAreInterrupted(t *testing.T) {
	records := interruption.RecordsIn(t.TempDir())
	if _, err := records.Add("u", "1"); err != nil {
		t.Fatal(err)
	}
	mark := func(ids ...string) (interrupted []string) {
		w := &worker{m: New(Config{Interruptions: records}), log: slog.New(slog.DiscardHandler)}
		f := &fact.Pod{UID: "u"}
		for _, id := range ids {
			f.Containers = append(f.Containers, fact.Container{ID: id, Name: "c" + id, State: fact.Exited, Reason: "Completed"})
		}
		w.markInterrupted(&corev1.Pod{}, f)
		for i := range f.Containers {
			if c := &f.Containers[i]; c.Interrupted && c.Reason == podstate.ReasonTerminated && !c.Succeeded() {
				interrupted = append(interrupted, c.ID)
			}
		}
		return interrupted
	}
	if got := mark("1", "2"); len(got) != 1 || got[0] != "1" {
		t.Errorf("interrupted are %v, want 1", got)
	}
	if got := mark("2"); len(got) != 0 {
		t.Errorf("interrupted are %v, want none", got)
	}
	if s, err := records.Of("u"); err != nil || !s.Empty() {
		t.Errorf("the record has %v, %v", s, err)
	}
}
