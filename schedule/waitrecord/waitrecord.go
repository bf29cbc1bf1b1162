// Package waitrecord keeps records open of Pods that wait for a node, in the queue of the scheduler or for a plugin before they are bound,
// so that a trace shows that they wait. Most Pods get their node at once; these have no open record and cost next to nothing.
package waitrecord

import (
	"context"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
	"proa.dev/internal/wait"
)

const (
	// Delay is how long a Pod waits in the queue before that is recorded.
	Delay = time.Second
	// MaxOpen is how many Pods have an open record; further ones have none, or they would push out other records.
	MaxOpen = 256
	// maxOfNamespace is how many of them one namespace has: a Pod with a scheduling gate waits forever, and costs nothing.
	maxOfNamespace = MaxOpen / 4
)

// Recorder records the Pods that wait. On a nil Recorder all methods do nothing.
type Recorder struct {
	record func(hop.Record)
	added  wait.Signal

	mu      sync.Mutex // guards what follows
	pods    map[types.UID]*waiting
	arrived []*waiting // in the queue for less than Delay, the oldest first
	open    int
	openOf  map[string]int // by namespace
}

// waiting is a Pod that waits.
type waiting struct {
	pod    *corev1.Pod
	since  time.Time
	detail string
	due    time.Time
	isOver bool
	opened *hop.Record // nil until it is recorded
}

// New returns a recorder that hands records to a function, which replaces the open record of the same work; nil if the function is nil.
func New(record func(hop.Record)) *Recorder {
	if record == nil {
		return nil
	}
	return &Recorder{record: record, added: wait.NewSignal(), pods: map[types.UID]*waiting{}, openOf: map[string]int{}}
}

// Queued says that a Pod is in the queue since a time. detail says what is worth knowing of that.
func (r *Recorder) Queued(pod *corev1.Pod, since time.Time, detail string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pods[pod.UID] != nil {
		return
	}
	w := &waiting{pod: pod, since: since, detail: detail, due: time.Now().Add(Delay)}
	r.pods[pod.UID] = w
	r.arrived = append(r.arrived, w)
	r.added.Send()
}

// Waits records that an attempt waits for something, which is its last step, before its Pod can be bound.
func (r *Recorder) Waits(attempt hop.Record) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.pods[attempt.UID]
	if w == nil {
		w = &waiting{}
		r.pods[attempt.UID] = w
	}
	attempt.Open = true
	if w.opened != nil {
		attempt.Rev = w.opened.Rev // by which the open record is found
	} else if !r.take(attempt.Namespace) {
		delete(r.pods, attempt.UID)
		w.isOver = true
		return
	}
	w.opened = &attempt
	r.record(attempt)
}

// End records an attempt that has ended, in place of its open record.
func (r *Recorder) End(attempt hop.Record) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.remove(attempt.UID); w != nil && w.opened != nil {
		attempt.Rev = w.opened.Rev
	}
	r.record(attempt)
}

// Forget ends the open record of a Pod that needs no node any more.
func (r *Recorder) Forget(uid types.UID, why string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(uid, why)
}

func (r *Recorder) forget(uid types.UID, why string) {
	w := r.remove(uid)
	if w == nil || w.opened == nil {
		return
	}
	rec := *w.opened
	rec.Open, rec.Error = false, why
	more := max(time.Since(rec.End()), 0)
	rec.Took[hop.Schedule] += more
	rec.Wait[hop.Schedule] += more
	r.record(rec)
}

// remove removes a Pod, and returns it if it was there.
func (r *Recorder) remove(uid types.UID) *waiting {
	w := r.pods[uid]
	if w == nil {
		return nil
	}
	delete(r.pods, uid)
	if w.isOver = true; w.opened != nil {
		r.release(w.opened.Namespace)
	}
	return w
}

// take counts one more open record of a namespace, if it may have one.
func (r *Recorder) take(namespace string) bool {
	if r.open == MaxOpen || r.openOf[namespace] == maxOfNamespace {
		return false
	}
	r.open++
	r.openOf[namespace]++
	return true
}

// release counts one less.
func (r *Recorder) release(namespace string) {
	r.open--
	if r.openOf[namespace]--; r.openOf[namespace] == 0 {
		delete(r.openOf, namespace)
	}
}

// Run records Pods that wait until ctx ends; then no record stays open.
func (r *Recorder) Run(ctx context.Context) {
	if r == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			r.stop()
			return
		case <-r.added:
		}
		for next := r.openDue(); !next.IsZero(); next = r.openDue() {
			if wait.Sleep(ctx, time.Until(next)) != nil {
				break
			}
		}
	}
}

// openDue records the Pods that have waited for long enough, and returns when the next one has; zero if there is none.
func (r *Recorder) openDue() (next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for len(r.arrived) > 0 {
		w := r.arrived[0]
		if !w.isOver && w.opened == nil {
			if now.Before(w.due) {
				return w.due
			}
			r.openQueued(w, now)
		}
		r.arrived[0] = nil
		r.arrived = r.arrived[1:]
	}
	r.arrived = nil
	return time.Time{}
}

// openQueued records that a Pod waits in the queue.
func (r *Recorder) openQueued(w *waiting, now time.Time) {
	pod := w.pod
	w.pod = nil
	rev, err := strconv.ParseInt(pod.ResourceVersion, 10, 64)
	if err != nil || !r.take(pod.Namespace) {
		delete(r.pods, pod.UID)
		return
	}
	took := now.Sub(w.since)
	rec := &hop.Record{
		UID: pod.UID, Rev: rev, Verb: hop.ScheduleAttempt, Resource: "pods", Namespace: pod.Namespace, Name: pod.Name,
		User: "system:kube-scheduler", Start: w.since, CauseUID: pod.UID, CauseRev: rev, Open: true,
		Steps: []hop.Step{{Hop: hop.Schedule, Name: "queue", Took: took, Wait: took, Detail: w.detail}},
	}
	rec.Took[hop.Schedule], rec.Wait[hop.Schedule] = took, took
	w.opened = rec
	r.record(*rec)
}

// stop ends all records, because somebody else schedules the Pods from now on, if anybody does.
func (r *Recorder) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.pods {
		r.forget(uid, "the scheduler has stopped")
	}
}
