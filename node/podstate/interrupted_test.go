package podstate

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/fact"
)

// TestInterruptedContainersHaveNotSucceeded is a regression test: "proa down" and "proa up" completed Jobs whose containers had
// exited with 0
// because they were stopped.
func TestInterruptedContainersHaveNotSucceeded(t *testing.T) {
	runCases(t, "testdata/interrupted.txt", func(s *testCase) string {
		if CannotResume(s.pod, s.facts, false) {
			s.seen.Termination, s.seen.Ended = NodeShutdown(nil), true
		}
		status := formatStatus(ComputeStatus(s.pod, s.facts, s.seen))
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

// TestEndedBeforeBoot checks that containers that a shutdown of the machine has ended without the agent noticing have
// not succeeded.
func TestEndedBeforeBoot(t *testing.T) {
	boot := time.Unix(5000, 0)
	statusWith := func(reason string) corev1.PodStatus {
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
		{"ended since the boot", corev1.PodStatus{}, time.Unix(5001, 0), boot, false},
		{"ended before the boot, not in the status", corev1.PodStatus{}, time.Unix(4999, 0), boot, true},
		{"ended before the boot, completed in the status", statusWith("Completed"), time.Unix(4999, 0), boot, false},
		{"ended before the boot, interrupted in the status", statusWith(ReasonTerminated), time.Unix(4999, 0), boot, true},
		{"boot time unknown", corev1.PodStatus{}, time.Unix(4999, 0), time.Time{}, false},
	} {
		p := &corev1.Pod{Status: x.status}
		if got := EndedBeforeBoot(p, &fact.Container{ID: "1", Name: "c", State: fact.Exited, Finished: x.finished}, x.boot); got != x.want {
			t.Errorf("%s: got %v", x.name, got)
		}
	}
}
