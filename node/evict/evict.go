// Package evict keeps a node from running out of memory, disk, inodes and process IDs: when there is less than a threshold, it
// frees what nobody uses, and if that is not enough, Pods must go. It also ends Pods that write more than they may.
//
// What to do is decided by pure functions (look, rank, beyond, message); the Manager looks around, and does it.
package evict

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"proa.dev/kinds/core"
	"proa.dev/node/clock"
	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/pod"
)

const (
	// every is how often the node is looked at.
	every = 10 * time.Second
	// cleanup is how long a Pod that was evicted is waited for before the next one goes.
	cleanup = 30 * time.Second
	// atOnce is the grace of Pods that must go now, in seconds.
	atOnce = 1
)

// Reason is why an evicted Pod has failed.
const Reason = "Evicted"

// Config is what a Manager works with.
type Config struct {
	Thresholds []Threshold
	// Transition is how long a condition stays true after it was last seen: 5 minutes if it is 0.
	Transition time.Duration
	// MaxGrace bounds the grace of Pods that a soft threshold evicts, in seconds.
	MaxGrace int64
	// Look measures the node and its Pods.
	Look func(ctx context.Context) (*statsv1.Summary, error)
	// Layout says on which filesystems things are.
	Layout func(ctx context.Context) (Layout, error)
	// Pods are those that run or are about to.
	Pods func() []*corev1.Pod
	// Evict ends a Pod, Gone says that nothing is left of it.
	Evict func(uid types.UID, v *pod.Verdict)
	Gone  func(uid types.UID) bool
	// FreeContainers and FreeImages remove what nobody uses; nil if there is nothing to.
	FreeContainers, FreeImages func(ctx context.Context) error
	// Events records Events about Pods, TellNode one about the Node.
	Events   event.Recorder
	TellNode func(eventType, reason, text string)
	// Changed is called when the conditions have changed.
	Changed func()
	Log     *slog.Logger
}

// Manager evicts.
type Manager struct {
	Config
	layout *Layout
	state  State

	mu         sync.Mutex // guards conditions
	conditions []corev1.NodeConditionType
}

// New makes a manager.
func New(c Config) *Manager {
	if c.Transition == 0 {
		c.Transition = 5 * time.Minute
	}
	return &Manager{Config: c}
}

// Run looks at the node until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	for ctx.Err() == nil {
		evicted, err := m.once(ctx)
		if err != nil && ctx.Err() == nil {
			m.Log.Error("the node cannot be looked at, so nothing is evicted", "err", err)
		}
		if len(evicted) > 0 {
			m.await(ctx, evicted)
			continue
		}
		clock.Sleep(ctx, every)
	}
}

// once looks and does what is needed. It returns the Pods that go.
func (m *Manager) once(ctx context.Context) ([]*corev1.Pod, error) {
	if m.layout == nil {
		l, err := m.Layout(ctx)
		if err != nil {
			return nil, fmt.Errorf("find out on which filesystems images and containers are: %w", err)
		}
		m.layout, m.Thresholds = &l, forContainers(m.Thresholds, l)
	}
	summary, err := m.Look(ctx)
	if err != nil {
		return nil, err
	}
	now, use := observe(summary), usagesOf(summary)
	var f Findings
	m.state, f = look(m.state, m.Thresholds, now, time.Now(), m.Transition)
	m.show(f.Conditions)
	pods := m.Pods()
	if gone := m.limits(pods, use); len(gone) > 0 || len(f.Short) == 0 {
		return gone, nil
	}
	first := f.Short[0]
	name := resourceOf(first.Signal)
	m.TellNode(corev1.EventTypeWarning, "EvictionThresholdMet", fmt.Sprintf("Attempting to reclaim %s", name))
	if m.free(ctx, first.Signal) {
		return nil, nil
	}
	for _, p := range rank(pods, first.Signal, use, *m.layout) {
		grace := int64(atOnce)
		if !first.hard() {
			grace = m.MaxGrace
			if g := p.Spec.TerminationGracePeriodSeconds; g != nil {
				grace = min(grace, *g)
			}
		}
		v := &pod.Verdict{Reason: Reason, Message: message(name, p, use[p.UID], f.Short, now), Disrupted: corev1.PodReasonTerminationByKubelet, Grace: &grace}
		if m.evict(p, v) {
			return []*corev1.Pod{p}, nil
		}
	}
	m.Log.Warn("the node runs short, and there is no Pod that may go", "resource", name)
	return nil, nil
}

// limits evicts the Pods that have written more than they may.
func (m *Manager) limits(pods []*corev1.Pod, use usages) (out []*corev1.Pod) {
	for _, p := range pods {
		u := use[p.UID]
		if u == nil {
			continue
		}
		if text := beyond(p, u, *m.layout); text != "" && m.evict(p, &pod.Verdict{Reason: Reason, Message: text, Grace: new(int64(atOnce))}) {
			out = append(out, p)
		}
	}
	return out
}

// evict ends a Pod, unless the node or the cluster cannot do without it.
func (m *Manager) evict(p *corev1.Pod, v *pod.Verdict) bool {
	if fact.Critical(p) {
		m.Log.Error("a critical Pod is not evicted", "pod", p.Namespace+"/"+p.Name)
		return false
	}
	m.Events.Event(p, "", corev1.EventTypeWarning, Reason, "%s", v.Message)
	m.Log.Info("evict a Pod", "pod", p.Namespace+"/"+p.Name, "why", v.Message)
	m.Evict(p.UID, v)
	return true
}

// free removes what nobody uses, and says whether that was enough.
func (m *Manager) free(ctx context.Context, s Signal) bool {
	what := reclaim(s, *m.layout)
	tried := false
	for _, x := range []struct {
		wanted bool
		do     func(context.Context) error
	}{{what.Containers, m.FreeContainers}, {what.Images, m.FreeImages}} {
		if !x.wanted || x.do == nil {
			continue
		}
		tried = true
		if err := x.do(ctx); err != nil {
			m.Log.Warn("not everything that nobody uses could be removed", "err", err)
		}
	}
	if !tried {
		return false
	}
	summary, err := m.Look(ctx)
	if err != nil {
		m.Log.Error("the node cannot be looked at after something was freed", "err", err)
		return false
	}
	return len(under(m.Thresholds, observe(summary), true)) == 0
}

// await waits until Pods that were evicted are gone: only then can be seen whether that was enough.
func (m *Manager) await(ctx context.Context, pods []*corev1.Pod) {
	for end := time.Now().Add(cleanup); time.Now().Before(end); {
		if !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return !m.Gone(p.UID) }) || !clock.Sleep(ctx, time.Second) {
			return
		}
	}
}

func (m *Manager) show(conditions []corev1.NodeConditionType) {
	m.mu.Lock()
	changed := !slices.Equal(conditions, m.conditions)
	m.conditions = conditions
	m.mu.Unlock()
	if changed && m.Changed != nil {
		m.Changed()
	}
}

// Pressed says that a condition of the Node is true.
func (m *Manager) Pressed(c corev1.NodeConditionType) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.conditions, c)
}

// Admit says why a Pod must not begin now, or nil.
func (m *Manager) Admit(p *corev1.Pod) *pod.Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.conditions) == 0 || fact.Critical(p) {
		return nil
	}
	// Without memory there is still some for Pods that have asked for it.
	if slices.Equal(m.conditions, []corev1.NodeConditionType{corev1.NodeMemoryPressure}) {
		if core.QOS(&p.Spec) != corev1.PodQOSBestEffort || tolerates(p, corev1.TaintNodeMemoryPressure) {
			return nil
		}
	}
	return &pod.Verdict{Reason: Reason, Message: fmt.Sprintf("The node had condition: %v. ", m.conditions), Rejected: true}
}

func tolerates(p *corev1.Pod, taint string) bool {
	return slices.ContainsFunc(p.Spec.Tolerations, func(t corev1.Toleration) bool {
		if t.Effect != "" && t.Effect != corev1.TaintEffectNoSchedule || t.Key != "" && t.Key != taint {
			return false
		}
		return t.Operator == corev1.TolerationOpExists || t.Key != "" && t.Value == ""
	})
}
