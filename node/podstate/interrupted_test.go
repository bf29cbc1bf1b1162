package podstate

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/fact"
)

// TestInterruptedRunsAreNoSuccess is a regression test: "down" and then "up" completed Jobs whose containers had exited with 0
// because they were stopped.
func TestInterruptedRunsAreNoSuccess(t *testing.T) {
	scenes(t, "testdata/interrupted.txt", func(s *scene) string {
		if CannotResume(s.pod, s.facts, false) {
			s.seen.Termination, s.seen.Ended = NodeShutdown(nil), true
		}
		status := showStatus(ComputeStatus(s.pod, s.facts, s.seen))
		phase, rest, _ := strings.Cut(status, "\n")
		out := []string{phase}
		for line := range strings.Lines(rest) {
			if name, _, _ := strings.Cut(line, ":"); strings.Contains(line, "terminated") || strings.Contains(line, "waiting") ||
				strings.Contains(name, "DisruptionTarget") {
				out = append(out, strings.TrimSpace(line))
			}
		}
		if s.seen.Termination == nil {
			out = append(out, ComputePlan(s.pod, s.facts, s.known).String())
		}
		return strings.Join(out, "\n")
	})
}

// TestAnEndThatNobodySawBeforeABootIsNoSuccess holds that containers that a shutdown of the machine has ended unobserved have
// not succeeded.
func TestAnEndThatNobodySawBeforeABootIsNoSuccess(t *testing.T) {
	boot := time.Unix(5000, 0)
	seen := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c",
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "containerd://1", Reason: reason}}}}}
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
		{"it was seen, as interrupted", seen(ReasonTerminated), time.Unix(4999, 0), boot, true},
		{"nobody knows when the machine started", corev1.PodStatus{}, time.Unix(4999, 0), time.Time{}, false},
	} {
		p := &corev1.Pod{Status: x.status}
		if got := EndedBeforeBoot(p, &fact.Container{ID: "1", Name: "c", State: fact.Exited, Finished: x.finished}, x.boot); got != x.want {
			t.Errorf("%s: got %v", x.name, got)
		}
	}
}
