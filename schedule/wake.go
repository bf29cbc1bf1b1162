package schedule

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/kind"
)

type wake struct {
	profile, plugin string
	Wake
}

// happening is a change in the cluster.
type happening struct {
	on      Resource
	do      Action
	was, is kind.Object
	about   types.UID // the pod it is about, if it is about one in the queue
	not     types.UID // a pod it shall not wake
	most    *int32    // if set, pods of a higher priority are not woken
}

// label names what happened.
func (h *happening) label() string { return string(h.on) + h.do.String() }

// Happened tells the queue of a change in the cluster, which may wake parked pods. not is a pod that it shall not wake.
func (q *Queue) Happened(on Resource, do Action, was, is kind.Object, not types.UID, now time.Time) {
	q.happen(happening{on: on, do: do, was: was, is: is, not: not}, now)
}

// Freed says that a pod no longer waits for room on a node. Those that are more important never counted it, so only the others
// are woken.
func (q *Queue) Freed(pod *corev1.Pod, node string, now time.Time) {
	q.happen(happening{on: AssignedPod, do: Delete, was: withNode(pod, node), not: pod.UID, most: new(priority(pod))}, now)
}

func (q *Queue) happen(h happening, now time.Time) {
	interested := false
	var hit map[types.UID]*Entry
	for _, w := range q.wakes[h.on] {
		if w.Do&h.do == 0 {
			continue
		}
		interested = true
		for uid, e := range q.parked[w.plugin] {
			if hit == nil {
				hit = map[types.UID]*Entry{}
			}
			hit[uid] = e
		}
	}
	if interested {
		q.note(h)
	}
	for uid, e := range q.parked[anyPlugin] {
		if hit == nil {
			hit = map[types.UID]*Entry{}
		}
		hit[uid] = e
	}
	for _, e := range hit {
		q.consider(e, &h, now)
	}
}

// cares says whether anybody waits for such changes.
func (q *Queue) cares(on Resource, do Action) bool {
	return len(q.parked[anyPlugin]) > 0 || slices.ContainsFunc(q.wakes[on], func(w wake) bool { return w.Do&do != 0 })
}

// anyPlugin is who rejects a pod that any change may help.
const anyPlugin = "Extender"

// note remembers a change for pods in flight.
func (q *Queue) note(h happening) {
	if q.flying == 0 {
		return
	}
	q.seq++
	if len(q.log) >= longestLog {
		q.log = slices.Delete(q.log, 0, longestLog/2)
	}
	q.log = append(q.log, h)
}

type worth uint8

const (
	stay worth = iota
	later
	atOnce
)

// consider moves a parked pod if a change can help it.
func (q *Queue) consider(e *Entry, h *happening, now time.Time) {
	switch q.worth(e, h) {
	case later:
		q.enqueue(e, now, true, h.label())
	case atOnce:
		q.enqueue(e, now, false, h.label())
	case stay:
	}
}

// worth says whether a change can help a pod.
func (q *Queue) worth(e *Entry, h *happening) worth {
	uid := e.Pod.Pod.UID
	if h.not == uid || h.about != "" && h.about != uid || h.most != nil && e.Pod.Priority() > *h.most {
		return stay
	}
	if e.by.Has(anyPlugin) && h.about == "" {
		return later
	}
	out := stay
	for _, w := range q.wakes[h.on] {
		rejected, waits := e.by.Has(w.plugin), e.pending.Has(w.plugin)
		if w.Do&h.do == 0 || !rejected && !waits || w.profile != e.Pod.Pod.Spec.SchedulerName {
			continue
		}
		if w.If != nil && !w.If(e.Pod.Pod, h.was, h.is) {
			continue
		}
		if waits {
			return atOnce
		}
		out = later
	}
	return out
}
