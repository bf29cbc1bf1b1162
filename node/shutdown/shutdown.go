// Package shutdown ends the Pods of a node in an order when the machine goes down: those with a low priority first, each group
// with a time of its own. It holds the machine up meanwhile, where systemd runs.
package shutdown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/pod"
)

// critical is the priority from which on a Pod belongs to the last group.
const critical = 2000000000

const rejected = "Pod was rejected as the node is shutting down."

// Period is how long Pods of a priority, up to the next one, may take.
type Period struct {
	Priority int32
	Seconds  int64
}

// Periods are those of the two settings that most people use: the whole time, and the part of it that is kept for critical Pods.
func Periods(whole, forCritical time.Duration) ([]Period, error) {
	switch {
	case whole == 0 && forCritical == 0:
		return nil, nil
	case whole < 0 || forCritical < 0 || forCritical > whole:
		return nil, fmt.Errorf("the time for a shutdown is %s, of which %s for critical Pods: the part may not be more than the whole", whole, forCritical)
	}
	return []Period{{0, int64((whole - forCritical) / time.Second)}, {critical, int64(forCritical / time.Second)}}, nil
}

// Plain says that periods are what Periods makes, or none.
func Plain(all []Period) bool {
	return len(all) == 0 || len(all) == 2 && all[0].Priority == 0 && all[1].Priority == critical
}

// Config is what a Manager works with.
type Config struct {
	// Periods may be in any order. Without any, nothing is done.
	Periods []Period
	Pods    func() []*corev1.Pod
	// End ends a Pod, Gone says that nothing is left of it.
	End  func(uid types.UID, v *pod.Verdict)
	Gone func(uid types.UID) bool
	// TellNode hears of it, Changed is called when the node begins to go down or does not after all.
	TellNode func(eventType, reason, text string)
	Changed  func()
	// Bus opens the system's bus; nil for the usual one.
	Bus func(ctx context.Context) (*Bus, error)
	Log *slog.Logger
}

// Manager takes a node down.
type Manager struct {
	Config
	down atomic.Bool
	once sync.Mutex // only one shutdown goes on
}

// New makes a manager.
func New(c Config) *Manager {
	c.Periods = slices.SortedFunc(slices.Values(c.Periods), func(a, b Period) int { return int(min(max(int64(a.Priority)-int64(b.Priority), -1), 1)) })
	if c.Bus == nil {
		c.Bus = OpenBus
	}
	return &Manager{Config: c}
}

// Status is an error while the node goes down; the Node is not ready then.
func (m *Manager) Status() error {
	if m.down.Load() {
		return errors.New("node is shutting down")
	}
	return nil
}

// Admit says why a Pod must not begin now, or nil.
func (m *Manager) Admit(*corev1.Pod) *pod.Verdict {
	if !m.down.Load() {
		return nil
	}
	return &pod.Verdict{Reason: "NodeShutdown", Message: rejected, Rejected: true}
}

// whole is how long it takes at most.
func (m *Manager) whole() (sum time.Duration) {
	for _, p := range m.Periods {
		sum += time.Duration(p.Seconds) * time.Second
	}
	return sum
}

// group is Pods that go together.
type group struct {
	Period
	pods []*corev1.Pod
}

// groups sorts Pods into periods, which are in the order of their priority: a Pod belongs to the last that is not above it, and
// to the first if all are.
func groups(periods []Period, pods []*corev1.Pod) []group {
	out := make([]group, len(periods))
	for i, p := range periods {
		out[i].Period = p
	}
	for _, p := range pods {
		var priority int32
		if p.Spec.Priority != nil {
			priority = *p.Spec.Priority
		}
		at := 0
		for i := range out {
			if out[i].Priority <= priority {
				at = i
			}
		}
		out[at].pods = append(out[at].pods, p)
	}
	return out
}

// Begin ends all Pods, group by group, and returns when they are gone or their time is over. An agent that is told to end the
// Pods when it ends calls it; otherwise Run does, when the machine goes down.
func (m *Manager) Begin(ctx context.Context) {
	m.once.Lock()
	defer m.once.Unlock()
	m.set(true)
	if len(m.Periods) == 0 {
		return
	}
	for _, g := range groups(m.Periods, m.Pods()) {
		m.end(ctx, g)
	}
}

func (m *Manager) set(down bool) {
	if m.down.Swap(down) != down && m.Changed != nil {
		m.Changed()
	}
}

func (m *Manager) end(ctx context.Context, g group) {
	if len(g.pods) == 0 {
		return
	}
	for _, p := range g.pods {
		grace := g.Seconds
		if own := p.Spec.TerminationGracePeriodSeconds; own != nil && *own <= grace {
			grace = *own
		}
		m.Log.Info("end a Pod, as the node goes down", "pod", p.Namespace+"/"+p.Name, "grace", grace)
		m.End(p.UID, pod.NodeShutdown(&grace))
	}
	end := time.NewTimer(time.Duration(g.Seconds) * time.Second)
	defer end.Stop()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for slices.ContainsFunc(g.pods, func(p *corev1.Pod) bool { return !m.Gone(p.UID) }) {
		select {
		case <-ctx.Done():
			return
		case <-end.C:
			m.Log.Warn("not all Pods have ended in time", "priority", g.Priority)
			return
		case <-tick.C:
		}
	}
}
