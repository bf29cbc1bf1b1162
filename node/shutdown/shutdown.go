// Package shutdown terminates the Pods of a node when the machine shuts down (graceful node shutdown): Pods of low
// priority first, each group with a grace period of its own. On machines with systemd it delays the shutdown meanwhile.
// It also stops all containers when somebody stops the node itself, see Stop.
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

	"proa.dev/node/podstate"
)

// critical is the priority from which on a Pod belongs to the last group.
const critical = 2000000000

// Period is the grace period of Pods whose priority is at least Priority and below that of the next period.
type Period struct {
	Priority int32
	Seconds  int64
}

// Periods makes the periods of the two common settings: the whole grace period, and the part of it that is kept for
// critical Pods.
func Periods(whole, forCritical time.Duration) ([]Period, error) {
	switch {
	case whole == 0 && forCritical == 0:
		return nil, nil
	case whole < 0 || forCritical < 0 || forCritical > whole:
		return nil, fmt.Errorf("the time for a shutdown is %s, of which %s for critical Pods: the part may not be more than the whole", whole, forCritical)
	}
	return []Period{{0, int64((whole - forCritical) / time.Second)}, {critical, int64(forCritical / time.Second)}}, nil
}

// IsTwoPeriods reports whether periods are such as Periods makes, or none.
func IsTwoPeriods(all []Period) bool {
	return len(all) == 0 || len(all) == 2 && all[0].Priority == 0 && all[1].Priority == critical
}

// Config is what a Manager needs.
type Config struct {
	// Periods may be in any order. If there are none, nothing is done.
	Periods []Period
	Pods    func() []*corev1.Pod
	// End terminates a Pod, Gone reports whether it has ended.
	End      func(uid types.UID, v *podstate.Termination)
	HasEnded func(uid types.UID) bool
	// RecordNodeEvent records an Event about the node. Changed is called when a shutdown begins or is cancelled.
	RecordNodeEvent func(eventType, reason, text string)
	Changed         func()
	// Bus opens the system bus; nil for OpenBus.
	Bus func(ctx context.Context) (*Bus, error)
	Log *slog.Logger
}

// Manager terminates the Pods of a node that shuts down.
type Manager struct {
	Config
	down atomic.Bool
	once sync.Mutex // held during a shutdown
}

// New makes a manager.
func New(c Config) *Manager {
	c.Periods = slices.SortedFunc(slices.Values(c.Periods),
		func(a, b Period) int { return int(min(max(int64(a.Priority)-int64(b.Priority), -1), 1)) })
	if c.Bus == nil {
		c.Bus = OpenBus
	}
	return &Manager{Config: c}
}

// Status returns an error during a shutdown; the Node is not ready then.
func (m *Manager) Status() error {
	if m.down.Load() {
		return errors.New("node is shutting down")
	}
	return nil
}

// totalGrace returns the sum of all grace periods.
func (m *Manager) totalGrace() (sum time.Duration) {
	for _, p := range m.Periods {
		sum += time.Duration(p.Seconds) * time.Second
	}
	return sum
}

// group is the Pods of one period.
type group struct {
	Period
	pods []*corev1.Pod
}

// groups sorts Pods into periods, which are ordered by priority: a Pod belongs to the last period whose priority is not
// above its own, and to the first if all are.
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

// Begin terminates all Pods, group by group, and returns when they have ended or their grace periods are over. Run
// calls it when the machine shuts down.
func (m *Manager) Begin(ctx context.Context) {
	m.once.Lock()
	defer m.once.Unlock()
	m.setDown(true)
	if len(m.Periods) == 0 {
		return
	}
	for _, g := range groups(m.Periods, m.Pods()) {
		m.end(ctx, g)
	}
}

func (m *Manager) setDown(down bool) {
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
		m.Log.Info("terminating a Pod, because the node shuts down", "pod", p.Namespace+"/"+p.Name, "grace", grace)
		m.End(p.UID, podstate.NodeShutdown(&grace))
	}
	end := time.NewTimer(time.Duration(g.Seconds) * time.Second)
	defer end.Stop()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for slices.ContainsFunc(g.pods, func(p *corev1.Pod) bool { return !m.HasEnded(p.UID) }) {
		select {
		case <-ctx.Done():
			return
		case <-end.C:
			m.Log.Warn("not all Pods have terminated in time", "priority", g.Priority)
			return
		case <-tick.C:
		}
	}
}
