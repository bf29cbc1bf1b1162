package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/podstate"
)

// stage is a node with one Pod. Its probes are commands, and each has a result that a test sets.
type stage struct {
	mu     sync.Mutex
	says   map[string]string // by command: ok, bad, broken, slow
	log    []string          // what happened, with seconds since the begin
	begin  time.Time
	pod    *corev1.Pod
	have   *fact.Pod
	prober *Prober
	stop   context.CancelFunc
}

func (s *stage) ExecSync(ctx context.Context, id string, command []string, _ time.Duration) ([]byte, int, error) {
	s.mu.Lock()
	says := s.says[command[0]]
	s.note("ask %s of %s", command[0], id)
	s.mu.Unlock()
	switch says {
	case "bad":
		return []byte("no good"), 1, nil
	case "broken":
		return nil, 0, errors.New("no runtime")
	case "slow":
		<-ctx.Done()
		return nil, 0, ctx.Err()
	}
	return nil, 0, nil
}

func (s *stage) Event(about event.Subject, kind, reason, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("%s %s %s: %s", kind, reason, about.Container, fmt.Sprintf(format, args...))
}

func (s *stage) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%v ", time.Since(s.begin).Seconds())+fmt.Sprintf(format, args...))
}

func (s *stage) changed(types.UID) {
	h := s.prober.Of("u", "c1")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note("changed: %s", show(h))
}

func show(h podstate.Health) string {
	text := fmt.Sprintf("started %v ready %v", h.Started, h.Ready)
	if h.Failed != nil {
		text += fmt.Sprintf(" failed %s %q", h.Failed.Probe, h.Failed.Message)
		if h.Failed.Grace != nil {
			text += fmt.Sprintf(" grace %d", *h.Failed.Grace)
		}
	}
	return text
}

// say sets the result of a command from now on.
func (s *stage) say(command, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.says[command] = what
}

// take returns what happened since the last time.
func (s *stage) take() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := strings.Join(s.log, "\n")
	s.log = nil
	return out
}

func exec(command string, change func(*corev1.Probe)) *corev1.Probe {
	p := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}}}
	if change != nil {
		change(p)
	}
	return p
}

func newStage(t *testing.T, c corev1.Container) *stage {
	ctx, stop := context.WithCancel(t.Context())
	s := &stage{says: map[string]string{}, begin: time.Now(), stop: stop}
	c.Name = "c"
	s.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Name: "p", Namespace: "n"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
	s.prober = New(ctx, Config{Runner: s, Events: s, Changed: s.changed,
		NodeIP: func() netip.Addr { return netip.MustParseAddr("127.0.0.1") }})
	s.runs("c1", time.Now())
	t.Cleanup(func() {
		stop()
		s.prober.Workers.Wait()
	})
	return s
}

// runs makes the container run under an ID.
func (s *stage) runs(id string, since time.Time) {
	s.have = &fact.Pod{UID: "u", Containers: []fact.Container{{ID: id, Name: "c", State: fact.Running, Started: since}}}
}

func (s *stage) sync() { s.prober.Sync(s.pod, s.have) }

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != strings.TrimSpace(want) {
		t.Errorf("got\n%s\nwant\n%s", got, strings.TrimSpace(want))
	}
}

func TestNoProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, corev1.Container{})
		want(t, show(s.prober.Of("u", "c1")), "started false ready false")
		s.sync()
		want(t, show(s.prober.Of("u", "containerd://c1")), "started true ready true")
		s.have.Containers[0].State = fact.Exited
		s.sync()
		want(t, show(s.prober.Of("u", "c1")), "started false ready false")
	})
}

func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, corev1.Container{ReadinessProbe: exec("ready", func(p *corev1.Probe) {
			p.InitialDelaySeconds, p.PeriodSeconds, p.FailureThreshold, p.SuccessThreshold = 3, 10, 2, 1
		})})
		s.say("ready", "bad")
		s.sync()
		time.Sleep(14 * time.Second)
		want(t, s.take(), `
3 ask ready of c1
3 Warning Unhealthy c: Readiness probe failed: no good
13 ask ready of c1
13 Warning Unhealthy c: Readiness probe failed: no good`)
		want(t, show(s.prober.Of("u", "c1")), "started true ready false")
		// A change of the Pod runs the readiness probe at once, and its period begins anew.
		s.say("ready", "ok")
		s.sync()
		want(t, s.take(), `
14 ask ready of c1
14 changed: started true ready true`)
		s.sync()
		want(t, s.take(), "")
		s.say("ready", "bad")
		time.Sleep(20 * time.Second)
		want(t, s.take(), `
24 ask ready of c1
24 Warning Unhealthy c: Readiness probe failed: no good
34 ask ready of c1
34 Warning Unhealthy c: Readiness probe failed: no good
34 changed: started true ready false`)
	})
}

func TestSuccessThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, corev1.Container{ReadinessProbe: exec("ready", func(p *corev1.Probe) { p.SuccessThreshold = 3 })})
		s.sync()
		time.Sleep(15 * time.Second)
		s.say("ready", "bad")
		time.Sleep(10 * time.Second)
		s.say("ready", "ok")
		time.Sleep(20 * time.Second)
		want(t, s.take(), `
0 ask ready of c1
10 ask ready of c1
20 ask ready of c1
20 Warning Unhealthy c: Readiness probe failed: no good
30 ask ready of c1
40 ask ready of c1`)
		time.Sleep(10 * time.Second)
		want(t, s.take(), "50 ask ready of c1\n50 changed: started true ready true")
	})
}

func TestLiveness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, corev1.Container{LivenessProbe: exec("live", func(p *corev1.Probe) {
			p.PeriodSeconds, p.FailureThreshold, p.TerminationGracePeriodSeconds = 1, 2, new(int64(7))
		})})
		s.sync()
		want(t, show(s.prober.Of("u", "c1")), "started true ready true")
		time.Sleep(1500 * time.Millisecond)
		s.say("live", "bad")
		time.Sleep(time.Minute)
		want(t, s.take(), `
0 ask live of c1
1 ask live of c1
2 ask live of c1
2 Warning Unhealthy c: Liveness probe failed: no good
3 ask live of c1
3 Warning Unhealthy c: Liveness probe failed: no good
3 changed: started true ready true failed liveness "Container c failed liveness probe" grace 7`)
		s.say("live", "ok")
		s.runs("c2", time.Now())
		s.sync()
		want(t, show(s.prober.Of("u", "c2")), "started true ready true")
		want(t, s.take(), "61.5 ask live of c2")
	})
}

func TestStartupHoldsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, corev1.Container{
			StartupProbe:   exec("start", func(p *corev1.Probe) { p.PeriodSeconds = 2 }),
			LivenessProbe:  exec("live", nil),
			ReadinessProbe: exec("ready", func(p *corev1.Probe) { p.InitialDelaySeconds = 5 }),
		})
		s.say("start", "bad")
		s.sync()
		time.Sleep(3 * time.Second)
		s.say("start", "ok")
		time.Sleep(6 * time.Second)
		want(t, s.take(), `
0 ask start of c1
0 Warning Unhealthy c: Startup probe failed: no good
2 ask start of c1
2 Warning Unhealthy c: Startup probe failed: no good
4 ask start of c1
4 changed: started true ready false
4 ask live of c1
5 ask ready of c1
5 changed: started true ready true`)
	})
}

func TestStartupFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, corev1.Container{StartupProbe: exec("start", func(p *corev1.Probe) { p.PeriodSeconds, p.FailureThreshold = 1, 1 }),
			LivenessProbe: exec("live", nil)})
		s.pod.Spec.InitContainers, s.pod.Spec.Containers = s.pod.Spec.Containers, nil
		s.say("start", "bad")
		s.sync()
		time.Sleep(time.Minute)
		want(t, s.take(), `
0 ask start of c1
0 Warning Unhealthy c: Startup probe failed: no good
0 changed: started false ready false failed startup "Init container c failed startup probe"`)
	})
}

func TestWhoCannotBeAskedIsNotJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, corev1.Container{LivenessProbe: exec("live", func(p *corev1.Probe) { p.FailureThreshold = 1 })})
		s.say("live", "broken")
		s.sync()
		want(t, s.take(), `
0 ask live of c1
0 ask live of c1
0 ask live of c1
0 Warning Unhealthy c: Liveness probe errored and resulted in unknown state: no runtime`)
		want(t, show(s.prober.Of("u", "c1")), "started true ready true")
	})
}

func TestTermination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, corev1.Container{
			LivenessProbe:  exec("live", func(p *corev1.Probe) { p.FailureThreshold = 1 }),
			ReadinessProbe: exec("ready", func(p *corev1.Probe) { p.FailureThreshold = 1 }),
		})
		s.sync()
		s.take()
		s.pod.DeletionTimestamp = new(metav1.Now())
		s.say("live", "bad")
		s.say("ready", "bad")
		s.sync()
		time.Sleep(10 * time.Second)
		want(t, s.take(), `
10 ask ready of c1
10 Warning Unhealthy c: Readiness probe failed: no good
10 changed: started true ready false`)
		s.prober.Forget("u")
		time.Sleep(time.Minute)
		want(t, s.take(), "")
	})
}

// TestEviction holds that the liveness of a Pod that terminates without being deleted is no longer probed.
func TestEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, corev1.Container{StartupProbe: exec("start", nil), LivenessProbe: exec("live", nil),
			ReadinessProbe: exec("ready", nil)})
		s.say("start", "bad")
		s.sync()
		s.take()
		s.prober.Terminating("u")
		want(t, show(s.prober.Of("u", "c1")), "started true ready false")
		s.sync()
		time.Sleep(time.Minute)
		if got := s.take(); strings.Contains(got, "live") || strings.Contains(got, "start of") ||
			!strings.Contains(got, "changed: started true ready true") {
			t.Error(got)
		}
	})
}

// TestAnEndedContainerIsLeftAlone also holds that a running probe is cancelled, and that no Event is recorded about it.
func TestAnEndedContainerIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, corev1.Container{LivenessProbe: exec("live", nil), ReadinessProbe: exec("ready", nil)})
		s.say("live", "slow")
		s.sync()
		s.take()
		s.have.Containers[0].State = fact.Exited
		s.sync()
		time.Sleep(time.Minute)
		want(t, s.take(), "")
		s.prober.Workers.Wait()
	})
}

// TestRestartOfTheAgent covers a container that ran before the agent: its status is trusted, and its probes are spread.
func TestRestartOfTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, corev1.Container{StartupProbe: exec("start", nil), ReadinessProbe: exec("ready", nil)})
		s.runs("c1", time.Now().Add(-time.Hour))
		s.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", ContainerID: "containerd://c1", Started: new(true),
			Ready: true}}
		s.sync()
		want(t, show(s.prober.Of("u", "c1")), "started true ready true")
		s.say("ready", "bad")
		time.Sleep(10 * time.Second)
		if got := s.take(); !strings.Contains(got, " ask ready of c1") || strings.HasPrefix(got, "0 ") ||
			strings.Contains(got, "start of") {
			t.Errorf("within one period: %s", got)
		}
		// The status of another run is not trusted.
		s.runs("c2", time.Now().Add(-time.Hour))
		s.sync()
		want(t, show(s.prober.Of("u", "c2")), "started false ready false")
	})
}
