package pod

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/fact"
	"proa.dev/node/interruption"
)

// TestInterruptedRunsAreNoSuccess: "down" and then "up" made Jobs complete whose containers had exited with 0 because they were told to.
func TestInterruptedRunsAreNoSuccess(t *testing.T) {
	scenes(t, "testdata/interrupted.txt", func(s *scene) string {
		if cannotResume(s.pod, s.facts, false) {
			s.seen.Verdict, s.seen.Ended = NodeShutdown(nil), true
		}
		status := showStatus(derive(s.pod, s.facts, s.seen))
		phase, rest, _ := strings.Cut(status, "\n")
		out := []string{phase}
		for line := range strings.Lines(rest) {
			if name, _, _ := strings.Cut(line, ":"); strings.Contains(line, "terminated") || strings.Contains(line, "waiting") || strings.Contains(name, "DisruptionTarget") {
				out = append(out, strings.TrimSpace(line))
			}
		}
		if s.seen.Verdict == nil {
			out = append(out, decide(s.pod, s.facts, s.known).String())
		}
		return strings.Join(out, "\n")
	})
}

// TestAnEndThatNobodySawBeforeABootIsNoSuccess: a shutdown of the machine ends containers too, when no agent is there to see it.
func TestAnEndThatNobodySawBeforeABootIsNoSuccess(t *testing.T) {
	boot := time.Unix(5000, 0)
	seen := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "containerd://1", Reason: reason}}}}}
	}
	for _, x := range []struct {
		name     string
		status   corev1.PodStatus
		finished time.Time
		boot     time.Time
		want     bool
	}{
		{"it ended in this boot", corev1.PodStatus{}, time.Unix(5001, 0), boot, false},
		{"nobody saw it", corev1.PodStatus{}, time.Unix(4999, 0), boot, true},
		{"it was seen", seen("Completed"), time.Unix(4999, 0), boot, false},
		{"it was seen, as interrupted", seen(reasonTerminated), time.Unix(4999, 0), boot, true},
		{"nobody knows when the machine started", corev1.PodStatus{}, time.Unix(4999, 0), time.Time{}, false},
	} {
		p := &corev1.Pod{Status: x.status}
		if got := lostWithMachine(p, &fact.Container{ID: "1", Name: "c", State: fact.Exited, Finished: x.finished}, x.boot); got != x.want {
			t.Errorf("%s: got %v", x.name, got)
		}
	}
}

// recordedBeforeStop plays the probes, which are told before the first container is stopped, and the API. It notes what the record of
// interruptions says at that moment.
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
func (r *recordedBeforeStop) Of(types.UID, string) Health { return Health{} }
func (r *recordedBeforeStop) Terminating(types.UID)       {}
func (r *recordedBeforeStop) Write(_ context.Context, p *corev1.Pod, _ *corev1.PodStatus) (*corev1.Pod, error) {
	return p, nil
}

// TestInterruptionIsRecordedBeforeTheFirstStop: what is killed in between must find the record. Where nothing can be recorded nothing is
// stopped, be it a Pod that goes on later or one that ends.
func TestInterruptionIsRecordedBeforeTheFirstStop(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	for name, stop := range map[string]func(*worker, *fact.Pod){
		"it goes on later": func(w *worker, f *fact.Pod) { w.pause(t.Context(), p, f, &stopOrder{time.Minute}) },
		"it ends": func(w *worker, f *fact.Pod) {
			w.end(t.Context(), p, f, false, NodeShutdown(nil), &stopOrder{time.Minute})
		},
	} {
		for _, full := range []bool{false, true} {
			dir := t.TempDir()
			if full {
				if err := os.WriteFile(filepath.Join(dir, "interrupted"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := &recordedBeforeStop{records: interruption.In(dir)}
			m := New(Config{Interruptions: r.records, Probes: r, Statuses: r, HostIPs: func() []netip.Addr { return nil }})
			w := &worker{m: m, log: slog.New(slog.DiscardHandler), busy: map[string]context.CancelFunc{workEnd: func() {}}} // nothing is stopped here
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

// TestRecordedRunsAreInterrupted: the next agent reads the record, takes the runs that it names for interrupted, and no others. A record that
// names none that is left goes.
func TestRecordedRunsAreInterrupted(t *testing.T) {
	records := interruption.In(t.TempDir())
	if _, err := records.Add("u", "1"); err != nil {
		t.Fatal(err)
	}
	mark := func(ids ...string) (interrupted []string) {
		w := &worker{m: New(Config{Interruptions: records}), log: slog.New(slog.DiscardHandler)}
		f := &fact.Pod{UID: "u"}
		for _, id := range ids {
			f.Containers = append(f.Containers, fact.Container{ID: id, Name: "c" + id, State: fact.Exited, Reason: "Completed"})
		}
		w.mark(&corev1.Pod{}, f)
		for i := range f.Containers {
			if c := &f.Containers[i]; c.Interrupted && c.Reason == reasonTerminated && !c.Succeeded() {
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
