package schedule

import (
	"context"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/schedule/podqueue"
)

// causedBy returns a context whose writes are recorded as caused by the state of the Pod that the scheduler has seen.
func causedBy(ctx context.Context, pod *corev1.Pod) context.Context {
	rev := revisionOf(pod.ResourceVersion)
	if rev == 0 {
		return ctx
	}
	return client.WithWriteSet(ctx, &client.WriteSet{CauseUID: pod.UID, CauseRev: rev})
}

// revisionOf returns the revision of a resourceVersion; 0 if it is none.
func revisionOf(resourceVersion string) int64 {
	rev, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return rev
}

// recordStep adds a step to the record of an attempt. It began at begin and ends now.
func (s *scheduler) recordStep(t *attempt, step hop.Step, begin time.Time) {
	if s.records == nil {
		return
	}
	step.Hop, step.After, step.Took = hop.Schedule, begin.Sub(t.queuedAt), time.Since(begin)
	t.steps = append(t.steps, step)
}

// recordSearch adds the steps until the decision: the time in the queue, the filtering and the scoring of nodes.
func (s *scheduler) recordSearch(t *attempt) {
	if s.records == nil {
		return
	}
	d := t.decision
	t.steps = make([]hop.Step, 0, 4) // queue, filter, score and bind
	queued := t.start.Sub(t.queuedAt)
	t.steps = append(t.steps, hop.Step{Hop: hop.Schedule, Name: "queue", Took: queued, Wait: queued, Detail: queueDetail(t)})
	filtered := t.decided
	if !d.ScoredAt.IsZero() {
		filtered = d.ScoredAt
	}
	t.steps = append(t.steps, hop.Step{Hop: hop.Schedule, Name: "filter", After: queued, Took: filtered.Sub(t.start),
		Detail: filterDetail(d.Feasible, d.Examined, d.Total), Failed: d.Node == ""})
	if !d.ScoredAt.IsZero() {
		t.steps = append(t.steps, hop.Step{Hop: hop.Schedule, Name: "score", After: filtered.Sub(t.queuedAt), Took: t.decided.Sub(filtered),
			Detail: d.Node + ", score " + strconv.FormatInt(d.Score, 10)})
	}
}

// queueDetail says which attempt it is, and what ended the wait of a Pod that was rejected before.
func queueDetail(t *attempt) string {
	if t.Attempts <= 1 {
		return ""
	}
	return "attempt " + strconv.Itoa(t.Attempts) + ", after " + t.EnqueuedBy
}

// gateDetail says which plugin keeps a Pod from being tried; empty for none.
func gateDetail(e *podqueue.Entry) string {
	if e == nil || e.GatedBy() == "" {
		return ""
	}
	return "not tried before " + e.GatedBy() + " allows it"
}

// filterDetail says how many nodes were found suitable.
func filterDetail(feasible, examined, total int) string {
	text := strconv.Itoa(feasible) + " of " + strconv.Itoa(examined) + " nodes"
	if examined < total {
		text += ", " + strconv.Itoa(total-examined) + " not examined"
	}
	return text
}

// recordAttempt records an attempt that has ended. The message says why it has failed; it is empty when the Pod is bound.
func (s *scheduler) recordAttempt(t *attempt, message string) {
	if s.records != nil {
		s.records.End(t.record(t.steps, message))
	}
}

// recordWait records that an attempt waits for a plugin before its Pod can be bound.
func (s *scheduler) recordWait(t *attempt, step, plugin string) {
	if s.records == nil {
		return
	}
	waits := hop.Step{Hop: hop.Schedule, Name: step, Detail: plugin, After: time.Since(t.queuedAt), Took: 1, Wait: 1}
	s.records.Waits(t.record(append(slices.Clone(t.steps), waits), ""))
}

// record returns the record of an attempt until now.
func (t *attempt) record(steps []hop.Step, message string) hop.Record {
	pod := t.info.Pod
	rec := hop.Record{
		UID: pod.UID, Rev: revisionOf(pod.ResourceVersion), Verb: hop.ScheduleAttempt, Resource: "pods",
		Namespace: pod.Namespace, Name: pod.Name, User: "system:kube-scheduler",
		Start: t.queuedAt, Steps: steps, CauseUID: pod.UID, CauseRev: revisionOf(t.queuedRevision), Error: truncateMessage(message),
	}
	rec.Took[hop.Schedule] = time.Since(t.queuedAt)
	for i := range steps {
		rec.Wait[hop.Schedule] += steps[i].Wait
	}
	return rec
}
