// Package eviction keeps a node from running out of memory, disk space, inodes and process IDs: when a threshold is
// crossed, it frees unused images and containers, and if that is not enough, it evicts Pods. It also evicts Pods that
// exceed their limits of local storage.
//
// Decisions are made by pure functions (look, rank, beyond, message); the Manager measures and acts.
package eviction

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"proa.dev/internal/wait"
	"proa.dev/node/agentmetrics"
	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/podstate"
)

const (
	// checkPeriod is the period of the checks.
	checkPeriod = 10 * time.Second
	// evictionWait is how long an evicted Pod is waited for before the next one is evicted.
	evictionWait = 30 * time.Second
	// hardGrace is the grace period of Pods that are evicted by a hard threshold, in seconds.
	hardGrace = 1
)

// Reason is the reason in the status of an evicted Pod.
const Reason = "Evicted"

// Config is what a Manager needs.
type Config struct {
	Thresholds []Threshold
	// Transition is how long a condition stays true after it was last seen: 5 minutes if it is 0.
	Transition time.Duration
	// MaxGrace limits the grace period of Pods that a soft threshold evicts, in seconds.
	MaxGrace int64
	// Measure measures the node and its Pods.
	Measure func(ctx context.Context) (*statsv1.Summary, error)
	// Layout returns which file systems there are.
	Layout func(ctx context.Context) (Layout, error)
	// Pods returns the Pods that run or are about to.
	Pods func() []*corev1.Pod
	// Evict ends a Pod, Gone reports whether it has ended.
	Evict    func(uid types.UID, v *podstate.Termination)
	HasEnded func(uid types.UID) bool
	// FreeContainers and FreeImages delete what is unused; they may be nil.
	FreeContainers, FreeImages func(ctx context.Context) error
	// Events records Events about Pods, RecordNodeEvent one about the Node.
	Events          event.Recorder
	RecordNodeEvent func(eventType, reason, text string)
	// Changed is called when the conditions have changed.
	Changed func()
	// Metrics counts evictions; it may be nil.
	Metrics *agentmetrics.Metrics
	Log     *slog.Logger
}

// Manager is the eviction manager of a node.
type Manager struct {
	Config
	layout *Layout
	state  State

	mu         sync.Mutex // guards conditions and shortages
	conditions []corev1.NodeConditionType
	shortages  map[corev1.NodeConditionType]string // as they were when the conditions became true
}

// New makes a manager.
func New(c Config) *Manager {
	if c.Transition == 0 {
		c.Transition = 5 * time.Minute
	}
	return &Manager{Config: c}
}

// Run checks the node until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	for ctx.Err() == nil {
		evicted, err := m.checkOnce(ctx)
		if err != nil && ctx.Err() == nil {
			m.Log.Error("the node cannot be measured, so nothing is evicted", "err", err)
		}
		if len(evicted) > 0 {
			m.waitForEnd(ctx, evicted)
			continue
		}
		_ = wait.Sleep(ctx, checkPeriod)
	}
}

// checkOnce checks the node once and acts. It returns the Pods that were evicted.
func (m *Manager) checkOnce(ctx context.Context) ([]*corev1.Pod, error) {
	if m.layout == nil {
		l, err := m.Layout(ctx)
		if err != nil {
			return nil, fmt.Errorf("find out on which filesystems images and containers are: %w", err)
		}
		m.layout, m.Thresholds = &l, withContainerFs(m.Thresholds, l)
	}
	summary, err := m.Measure(ctx)
	if err != nil {
		return nil, err
	}
	now, use := observe(summary), usagesOf(summary)
	var f Findings
	m.state, f = checkThresholds(m.state, m.Thresholds, now, time.Now(), m.Transition)
	m.setConditions(f.Conditions, f.Shortages)
	pods := m.Pods()
	if evicted := m.evictOverLimit(pods, use); len(evicted) > 0 || len(f.Crossed) == 0 {
		return evicted, nil
	}
	first := f.Crossed[0]
	name := resourceOf(first.Signal)
	m.RecordNodeEvent(corev1.EventTypeWarning, "EvictionThresholdMet", fmt.Sprintf("Attempting to reclaim %s", name))
	if m.free(ctx, first.Signal) {
		return nil, nil
	}
	for _, p := range rank(pods, first.Signal, use, *m.layout) {
		grace := int64(hardGrace)
		if !first.isHard() {
			grace = m.MaxGrace
			if g := p.Spec.TerminationGracePeriodSeconds; g != nil {
				grace = min(grace, *g)
			}
		}
		v := &podstate.Termination{Reason: Reason, Message: message(name, p, use[p.UID], f.Crossed, now),
			DisruptionReason: corev1.PodReasonTerminationByKubelet, Grace: &grace}
		if m.evict(p, v) {
			m.Metrics.Evicted(string(first.Signal))
			return []*corev1.Pod{p}, nil
		}
	}
	m.Log.Warn("the node is low on a resource, and there is no Pod that may be evicted", "resource", name)
	return nil, nil
}

// evictOverLimit evicts the Pods that exceed their limits of local storage.
func (m *Manager) evictOverLimit(pods []*corev1.Pod, use usages) (out []*corev1.Pod) {
	for _, p := range pods {
		u := use[p.UID]
		if u == nil {
			continue
		}
		text, signal := exceededLimit(p, u, *m.layout)
		if text != "" && m.evict(p, &podstate.Termination{Reason: Reason, Message: text, Grace: new(int64(hardGrace))}) {
			m.Metrics.Evicted(signal)
			out = append(out, p)
		}
	}
	return out
}

// evict ends a Pod, unless it is critical.
func (m *Manager) evict(p *corev1.Pod, v *podstate.Termination) bool {
	if fact.Critical(p) {
		m.Log.Error("a critical Pod is not evicted", "pod", p.Namespace+"/"+p.Name)
		return false
	}
	m.Events.Event(event.Pod(p), corev1.EventTypeWarning, Reason, "%s", v.Message)
	m.Log.Info("evicting a Pod", "pod", p.Namespace+"/"+p.Name, "why", v.Message)
	m.Evict(p.UID, v)
	return true
}

// free deletes what is unused, and reports whether that was enough.
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
			m.Log.Warn("not all unused images or containers could be deleted", "err", err)
		}
	}
	if !tried {
		return false
	}
	summary, err := m.Measure(ctx)
	if err != nil {
		m.Log.Error("the node cannot be measured after resources were freed", "err", err)
		return false
	}
	return len(crossedThresholds(m.Thresholds, observe(summary), true)) == 0
}

// waitForEnd waits until evicted Pods have ended: only then their effect can be measured.
func (m *Manager) waitForEnd(ctx context.Context, pods []*corev1.Pod) {
	for end := time.Now().Add(evictionWait); time.Now().Before(end); {
		if !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return !m.HasEnded(p.UID) }) || wait.Sleep(ctx, time.Second) != nil {
			return
		}
	}
}

// setConditions keeps the conditions. What they say was short stays as long as they do, so that figures that change with every check cause
// no writes.
func (m *Manager) setConditions(conditions []corev1.NodeConditionType, shortages map[corev1.NodeConditionType]string) {
	m.mu.Lock()
	changed := !slices.Equal(conditions, m.conditions)
	kept := map[corev1.NodeConditionType]string{}
	for _, c := range conditions {
		kept[c] = cmp.Or(m.shortages[c], shortages[c])
	}
	m.conditions, m.shortages = conditions, kept
	m.mu.Unlock()
	if changed && m.Changed != nil {
		m.Changed()
	}
}

// Pressure reports whether a pressure condition of the Node is true, and what was short when it became so.
func (m *Manager) Pressure(c corev1.NodeConditionType) (shortage string, is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shortages[c], slices.Contains(m.conditions, c)
}
