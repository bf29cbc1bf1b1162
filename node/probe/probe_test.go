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

// fakeNode is a node with one Pod. Its probes are commands whose results the test sets.
type fakeNode struct {
	mu      sync.Mutex
	results map[string]string // by command: ok, bad, broken, slow
	log     []string          // commands, Events and changes, with seconds since the start
	start   time.Time
	pod     *corev1.Pod
	facts   *fact.Pod
	prober  *Prober
	stop    context.CancelFunc
}

func (s *fakeNode) ExecSync(ctx context.Context, id string, command []string, _ time.Duration) ([]byte, int, error) {
	s.mu.Lock()
	says := s.results[command[0]]
	s.record("exec %s of %s", command[0], id)
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

func (s *fakeNode) Event(about event.Subject, kind, reason, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record("%s %s %s: %s", kind, reason, about.Container, fmt.Sprintf(format, args...))
}

func (s *fakeNode) record(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%v ", time.Since(s.start).Seconds())+fmt.Sprintf(format, args...))
}

func (s *fakeNode) changed(types.UID) {
	h := s.prober.Of("u", "c1")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record("changed: %s", formatHealth(h))
}

func formatHealth(h podstate.Health) string {
	text := fmt.Sprintf("started %v ready %v", h.Started, h.Ready)
	if h.Failed != nil {
		text += fmt.Sprintf(" failed %s %q", h.Failed.Probe, h.Failed.Message)
		if h.Failed.Grace != nil {
			text += fmt.Sprintf(" grace %d", *h.Failed.Grace)
		}
	}
	return text
}

// setResult sets the result of a command.
func (s *fakeNode) setResult(command, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results[command] = what
}

// take returns the log since the last call.
func (s *fakeNode) take() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := strings.Join(s.log, "\n")
	s.log = nil
	return out
}

func execProbe(command string, change func(*corev1.Probe)) *corev1.Probe {
	p := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}}}
	if change != nil {
		change(p)
	}
	return p
}

func newFakeNode(t *testing.T, c corev1.Container) *fakeNode {
	ctx, stop := context.WithCancel(t.Context())
	s := &fakeNode{results: map[string]string{}, start: time.Now(), stop: stop}
	c.Name = "c"
	s.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Name: "p", Namespace: "n"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
	s.prober = New(ctx, Config{Runner: s, Events: s, Changed: s.changed,
		NodeIP: func() netip.Addr { return netip.MustParseAddr("127.0.0.1") }})
	s.setContainer("c1", time.Now())
	t.Cleanup(func() {
		stop()
		s.prober.Workers.Wait()
	})
	return s
}

// setContainer replaces the running container by one with another ID.
func (s *fakeNode) setContainer(id string, since time.Time) {
	s.facts = &fact.Pod{UID: "u", Containers: []fact.Container{{ID: id, Name: "c", State: fact.Running, Started: since}}}
}

func (s *fakeNode) sync() { s.prober.Sync(s.pod, s.facts) }

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != strings.TrimSpace(want) {
		t.Errorf("got\n%s\nwant\n%s", got, strings.TrimSpace(want))
	}
}

func TestNoProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeNode(t, corev1.Container{})
		want(t, formatHealth(s.prober.Of("u", "c1")), "started false ready false")
		s.sync()
		want(t, formatHealth(s.prober.Of("u", "containerd://c1")), "started true ready true")
		s.facts.Containers[0].State = fact.Exited
		s.sync()
		want(t, formatHealth(s.prober.Of("u", "c1")), "started false ready false")
	})
}

func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeNode(t, corev1.Container{ReadinessProbe: execProbe("ready", func(p *corev1.Probe) {
			p.InitialDelaySeconds, p.PeriodSeconds, p.FailureThreshold, p.SuccessThreshold = 3, 10, 2, 1
		})})
		s.setResult("ready", "bad")
		s.sync()
		time.Sleep(14 * time.Second)
		want(t, s.take(), `
3 exec ready of c1
3 Warning Unhealthy c: Readiness probe failed: no good
13 exec ready of c1
13 Warning Unhealthy c: Readiness probe failed: no good`)
		want(t, formatHealth(s.prober.Of("u", "c1")), "started true ready false")
		// A change of the Pod runs the readiness probe at once, and its period starts again.
		s.setResult("ready", "ok")
		s.sync()
		want(t, s.take(), `
14 exec ready of c1
14 changed: started true ready true`)
		s.sync()
		want(t, s.take(), "")
		s.setResult("ready", "bad")
		time.Sleep(20 * time.Second)
		want(t, s.take(), `
24 exec ready of c1
24 Warning Unhealthy c: Readiness probe failed: no good
34 exec ready of c1
34 Warning Unhealthy c: Readiness probe failed: no good
34 changed: started true ready false`)
	})
}

func TestSuccessThreshold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeNode(t, corev1.Container{ReadinessProbe: execProbe("ready", func(p *corev1.Probe) { p.SuccessThreshold = 3 })})
		s.sync()
		time.Sleep(15 * time.Second)
		s.setResult("ready", "bad")
		time.Sleep(10 * time.Second)
		s.setResult("ready", "ok")
		time.Sleep(20 * time.Second)
		want(t, s.take(), `
0 exec ready of c1
10 exec ready of c1
20 exec ready of c1
20 Warning Unhealthy c: Readiness probe failed: no good
30 exec ready of c1
40 exec ready of c1`)
		time.Sleep(10 * time.Second)
		want(t, s.take(), "50 exec ready of c1\n50 changed: started true ready true")
	})
}

func TestLiveness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeNode(t, corev1.Container{LivenessProbe: execProbe("live", func(p *corev1.Probe) {
			p.PeriodSeconds, p.FailureThreshold, p.TerminationGracePeriodSeconds = 1, 2, new(int64(7))
		})})
		s.sync()
		want(t, formatHealth(s.prober.Of("u", "c1")), "started true ready true")
		time.Sleep(1500 * time.Millisecond)
		s.setResult("live", "bad")
		time.Sleep(time.Minute)
		want(t, s.take(), `
0 exec live of c1
1 exec live of c1
2 exec live of c1
2 Warning Unhealthy c: Liveness probe failed: no good
3 exec live of c1
3 Warning Unhealthy c: Liveness probe failed: no good
3 changed: started true ready true failed liveness "Container c failed liveness probe" grace 7`)
		s.setResult("live", "ok")
		s.setContainer("c2", time.Now())
		s.sync()
		want(t, formatHealth(s.prober.Of("u", "c2")), "started true ready true")
		want(t, s.take(), "61.5 exec live of c2")
	})
}

func TestStartupProbeDelaysTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeNode(t, corev1.Container{
			StartupProbe:   execProbe("start", func(p *corev1.Probe) { p.PeriodSeconds = 2 }),
			LivenessProbe:  execProbe("live", nil),
			ReadinessProbe: execProbe("ready", func(p *corev1.Probe) { p.InitialDelaySeconds = 5 }),
		})
		s.setResult("start", "bad")
		s.sync()
		time.Sleep(3 * time.Second)
		s.setResult("start", "ok")
		time.Sleep(6 * time.Second)
		want(t, s.take(), `
0 exec start of c1
0 Warning Unhealthy c: Startup probe failed: no good
2 exec start of c1
2 Warning Unhealthy c: Startup probe failed: no good
4 exec start of c1
4 changed: started true ready false
4 exec live of c1
5 exec ready of c1
5 changed: started true ready true`)
	})
}

func TestStartupFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeNode(t, corev1.Container{
			StartupProbe:  execProbe("start", func(p *corev1.Probe) { p.PeriodSeconds, p.FailureThreshold = 1, 1 }),
			LivenessProbe: execProbe("live", nil)})
		s.pod.Spec.InitContainers, s.pod.Spec.Containers = s.pod.Spec.Containers, nil
		s.setResult("start", "bad")
		s.sync()
		time.Sleep(time.Minute)
		want(t, s.take(), `
0 exec start of c1
0 Warning Unhealthy c: Startup probe failed: no good
0 changed: started false ready false failed startup "Init container c failed startup probe"`)
	})
}

func TestProbeErrorIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeNode(t, corev1.Container{LivenessProbe: execProbe("live", func(p *corev1.Probe) { p.FailureThreshold = 1 })})
		s.setResult("live", "broken")
		s.sync()
		want(t, s.take(), `
0 exec live of c1
0 exec live of c1
0 exec live of c1
0 Warning Unhealthy c: Liveness probe errored and resulted in unknown state: no runtime`)
		want(t, formatHealth(s.prober.Of("u", "c1")), "started true ready true")
	})
}

func TestTermination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeNode(t, corev1.Container{
			LivenessProbe:  execProbe("live", func(p *corev1.Probe) { p.FailureThreshold = 1 }),
			ReadinessProbe: execProbe("ready", func(p *corev1.Probe) { p.FailureThreshold = 1 }),
		})
		s.sync()
		s.take()
		s.pod.DeletionTimestamp = new(metav1.Now())
		s.setResult("live", "bad")
		s.setResult("ready", "bad")
		s.sync()
		time.Sleep(10 * time.Second)
		want(t, s.take(), `
10 exec ready of c1
10 Warning Unhealthy c: Readiness probe failed: no good
10 changed: started true ready false`)
		s.prober.Forget("u")
		time.Sleep(time.Minute)
		want(t, s.take(), "")
	})
}

// TestEviction checks that the liveness of a Pod that terminates without being deleted is no longer probed.
func TestEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeNode(t, corev1.Container{StartupProbe: execProbe("start", nil), LivenessProbe: execProbe("live", nil),
			ReadinessProbe: execProbe("ready", nil)})
		s.setResult("start", "bad")
		s.sync()
		s.take()
		s.prober.Terminating("u")
		want(t, formatHealth(s.prober.Of("u", "c1")), "started true ready false")
		s.sync()
		time.Sleep(time.Minute)
		if got := s.take(); strings.Contains(got, "live") || strings.Contains(got, "start of") ||
			!strings.Contains(got, "changed: started true ready true") {
			t.Error(got)
		}
	})
}

// TestEndedContainerIsNotProbed also checks that a running probe is cancelled, and that no Event is recorded about it.
func TestEndedContainerIsNotProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeNode(t, corev1.Container{LivenessProbe: execProbe("live", nil), ReadinessProbe: execProbe("ready", nil)})
		s.setResult("live", "slow")
		s.sync()
		s.take()
		s.facts.Containers[0].State = fact.Exited
		s.sync()
		time.Sleep(time.Minute)
		want(t, s.take(), "")
		s.prober.Workers.Wait()
	})
}

// TestRestartOfTheAgent covers a container that ran before the agent: its status is trusted, and its probes are spread.
func TestRestartOfTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeNode(t, corev1.Container{StartupProbe: execProbe("start", nil), ReadinessProbe: execProbe("ready", nil)})
		s.setContainer("c1", time.Now().Add(-time.Hour))
		s.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", ContainerID: "containerd://c1", Started: new(true),
			Ready: true}}
		s.sync()
		want(t, formatHealth(s.prober.Of("u", "c1")), "started true ready true")
		s.setResult("ready", "bad")
		time.Sleep(10 * time.Second)
		if got := s.take(); !strings.Contains(got, " exec ready of c1") || strings.HasPrefix(got, "0 ") ||
			strings.Contains(got, "start of") {
			t.Errorf("within one period: %s", got)
		}
		// The status of another run is not trusted.
		s.setContainer("c2", time.Now().Add(-time.Hour))
		s.sync()
		want(t, formatHealth(s.prober.Of("u", "c2")), "started false ready false")
	})
}
