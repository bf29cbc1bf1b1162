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

// stopped plays the Pods of a node that need a while to stop.
type stopped struct {
	*house
	full bool // the disk
}

func (s stopped) Hold()   { s.note("hold") }
func (s stopped) Resume() { s.note("resume") }
func (s stopped) Record(uid types.UID) error {
	s.note("record %s", uid)
	if s.full {
		return errors.New("no space left on device")
	}
	return nil
}
func (s stopped) Interrupt(uid types.UID, limit time.Duration) {
	s.note("interrupt %s %s", uid, limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends[uid] = time.Now().Add(s.needs[uid])
}
func (s stopped) Stopped(uid types.UID) (bool, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end, told := s.ends[uid]
	done := told && !time.Now().Before(end)
	return done, done
}

// stopScene stops three Pods, and returns what happened.
func stopScene(ctx context.Context, full bool, limit time.Duration) string {
	h := &house{begin: time.Now(), ends: map[types.UID]time.Time{},
		needs: map[types.UID]time.Duration{"quick": time.Second, "slow": time.Hour, "critical": 2 * time.Second}}
	all := []*corev1.Pod{guest("critical", critical, 60), guest("quick", 0, 5), guest("slow", 0, 30)}
	left, told := []string{}, ""
	left, err := Stop(ctx, stopped{h, full}, all, limit, func(p Progress) {
		if text := fmt.Sprintf("%d of %d, %s", len(p.Left), p.Pods, p.Longest); text != told {
			told = text
			h.note("%s", text)
		}
	})
	h.note("left %v %v", left, err)
	return strings.Join(h.log, "\n")
}

// TestStopRecordsFirstAndStopsCriticalPodsLast: what was not recorded before the first signal could be taken for success.
func TestStopRecordsFirstAndStopsCriticalPodsLast(t *testing.T) {
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
		if got := stopScene(t.Context(), false, 10*time.Minute); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// TestStopIsTakenBack: where nothing can be recorded nothing is stopped, and whoever changes his mind gets his Pods back.
func TestStopIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := `0 hold
0 record critical
0 resume
0 left [] Pod /critical: no space left on device`
		if got := stopScene(t.Context(), true, time.Minute); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		got := strings.Split(stopScene(ctx, false, time.Minute), "\n")
		if last := got[len(got)-2:]; !slices.Equal(last, []string{"5 resume", "5 left [] context deadline exceeded"}) {
			t.Errorf("got %q", last)
		}
	})
}
