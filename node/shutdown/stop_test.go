package shutdown

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// fakeStopper simulates the Pods of a node, which need some time to stop.
type fakeStopper struct {
	*fakePods
	diskFull bool
}

func (s fakeStopper) Hold()   { s.record("hold") }
func (s fakeStopper) Resume() { s.record("resume") }
func (s fakeStopper) Record(uid types.UID) error {
	s.record("record %s", uid)
	if s.diskFull {
		return errors.New("no space left on device")
	}
	return nil
}
func (s fakeStopper) Interrupt(uid types.UID, limit time.Duration) {
	s.record("interrupt %s %s", uid, limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endTimes[uid] = time.Now().Add(s.stopTimes[uid])
}
func (s fakeStopper) Stopped(uid types.UID) (bool, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end, interrupted := s.endTimes[uid]
	done := interrupted && !time.Now().Before(end)
	return done, done
}

// runStop stops three Pods, and returns a log of the calls.
func runStop(ctx context.Context, diskFull bool, limit time.Duration) string {
	h := &fakePods{start: time.Now(), endTimes: map[types.UID]time.Time{},
		stopTimes: map[types.UID]time.Duration{"quick": time.Second, "slow": time.Hour, "critical": 2 * time.Second}}
	all := []*corev1.Pod{newPod("critical", critical, 60), newPod("quick", 0, 5), newPod("slow", 0, 30)}
	lastProgress := ""
	remaining, err := Stop(ctx, fakeStopper{h, diskFull}, all, limit, func(p Progress) {
		if text := fmt.Sprintf("%d of %d, %s", len(p.Left), p.Pods, p.Longest); text != lastProgress {
			lastProgress = text
			h.record("%s", text)
		}
	})
	h.record("left %v %v", remaining, err)
	return strings.Join(h.log, "\n")
}

// TestStopRecordsFirstAndCriticalPodsLast checks that all Pods are recorded before the first is stopped, so that none counts
// as successful, and that critical Pods are stopped last.
func TestStopRecordsFirstAndCriticalPodsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := `0 hold
0 record critical
0 record quick
0 record slow
0 interrupt quick 10m0s
0 interrupt slow 10m0s
0 3 of 3, 1m0s
1 2 of 3, 1m0s
40 interrupt critical 10m0s
42 1 of 3, 1m0s
47 left [/slow] <nil>`
		if got := runStop(t.Context(), false, 10*time.Minute); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// TestStopIsUndone checks that no Pod is stopped if they cannot be recorded, and that a cancelled stop resumes the Pods.
func TestStopIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := `0 hold
0 record critical
0 resume
0 left [] Pod /critical: no space left on device`
		if got := runStop(t.Context(), true, time.Minute); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		got := strings.Split(runStop(ctx, false, time.Minute), "\n")
		if last := got[len(got)-2:]; !slices.Equal(last, []string{"5 resume", "5 left [] context deadline exceeded"}) {
			t.Errorf("got %q", last)
		}
	})
}
