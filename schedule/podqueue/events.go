package podqueue

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/kind"
	"proa.dev/schedule/framework"
)

// pluginHint is a queueing hint of a plugin in a profile.
type pluginHint struct {
	profile, plugin string
	framework.QueueingHint
}

// ClusterEvent is a change in the cluster that may make rejected Pods schedulable.
type ClusterEvent struct {
	On framework.Resource
	Do framework.Action
	// Old is nil for an object that was added, New for one that was deleted.
	Old, New kind.Object
	// Except is a Pod that the event does not wake, because it caused the event itself.
	Except types.UID

	target      types.UID // if set, the event is about this Pod of the queue and wakes no other
	maxPriority *int32    // if set, Pods of a higher priority are not woken
}

// label names the event as upstream's metrics do.
func (ev *ClusterEvent) label() string { return string(ev.On) + ev.Do.String() }

// HandleRemovedNomination wakes Pods because a Pod is no longer nominated for a node. Pods of a higher priority never
// counted the nominated Pod, so only the others are woken.
func (q *Queue) HandleRemovedNomination(pod *corev1.Pod, node string, now time.Time) {
	q.HandleEvent(ClusterEvent{
		On: framework.AssignedPod, Do: framework.Delete, Old: WithNode(pod, node), Except: pod.UID,
		maxPriority: new(framework.PodPriority(pod)),
	}, now)
}

// HandleEvent wakes the unschedulable Pods that an event may have made schedulable, and remembers the event for the
// Pods in flight.
func (q *Queue) HandleEvent(ev ClusterEvent, now time.Time) {
	interested := false
	var hit map[types.UID]*Entry
	for _, w := range q.hints[ev.On] {
		if w.Do&ev.Do == 0 {
			continue
		}
		interested = true
		for uid, e := range q.unschedulable[w.plugin] {
			if hit == nil {
				hit = map[types.UID]*Entry{}
			}
			hit[uid] = e
		}
	}
	if interested {
		q.rememberInFlight(ev)
	}
	for uid, e := range q.unschedulable[ExtenderPlugin] {
		if hit == nil {
			hit = map[types.UID]*Entry{}
		}
		hit[uid] = e
	}
	for _, e := range hit {
		q.wakeIfHelpful(e, &ev, now)
	}
}

// IsInterested reports whether any plugin has a hint for such events.
func (q *Queue) IsInterested(on framework.Resource, do framework.Action) bool {
	return len(q.unschedulable[ExtenderPlugin]) > 0 || slices.ContainsFunc(q.hints[on], func(w pluginHint) bool { return w.Do&do != 0 })
}

// ExtenderPlugin is the name under which rejections by extenders are recorded. Any event may make a Pod schedulable
// that an extender has rejected.
const ExtenderPlugin = "Extender"

// rememberInFlight keeps an event for the Pods in flight.
func (q *Queue) rememberInFlight(ev ClusterEvent) {
	if q.inFlight == 0 {
		return
	}
	q.eventCount++
	if len(q.inFlightEvents) >= maxInFlightEvents {
		q.inFlightEvents = slices.Delete(q.inFlightEvents, 0, maxInFlightEvents/2)
	}
	q.inFlightEvents = append(q.inFlightEvents, ev)
}

// hint says what to do with a Pod because of an event.
type hint uint8

const (
	skipPod hint = iota
	queueAfterBackoff
	queueNow
)

// wakeIfHelpful enqueues an unschedulable Pod if an event can help it.
func (q *Queue) wakeIfHelpful(e *Entry, ev *ClusterEvent, now time.Time) {
	switch q.hint(e, ev) {
	case queueAfterBackoff:
		q.enqueue(e, now, true, ev.label())
	case queueNow:
		q.enqueue(e, now, false, ev.label())
	case skipPod:
	}
}

// hint returns what to do with a Pod because of an event.
func (q *Queue) hint(e *Entry, ev *ClusterEvent) hint {
	uid := e.Pod.Pod.UID
	if ev.Except == uid || ev.target != "" && ev.target != uid || ev.maxPriority != nil && e.Pod.Priority() > *ev.maxPriority {
		return skipPod
	}
	if e.rejectedBy.Has(ExtenderPlugin) && ev.target == "" {
		return queueAfterBackoff
	}
	out := skipPod
	for _, w := range q.hints[ev.On] {
		rejected, waits := e.rejectedBy.Has(w.plugin), e.pendingPlugins.Has(w.plugin)
		if w.Do&ev.Do == 0 || !rejected && !waits || w.profile != e.Pod.Pod.Spec.SchedulerName {
			continue
		}
		if w.If != nil && !w.If(e.Pod.Pod, ev.Old, ev.New) {
			continue
		}
		if waits {
			return queueNow
		}
		out = queueAfterBackoff
	}
	return out
}

// WithNode returns a copy of a Pod with a node, for events that a Pod which was assumed or nominated no longer needs
// the node.
func WithNode(pod *corev1.Pod, node string) *corev1.Pod {
	if pod.Spec.NodeName != "" {
		return pod
	}
	out := *pod
	out.Spec.NodeName = node
	return &out
}
