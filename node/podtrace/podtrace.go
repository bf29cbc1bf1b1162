// Package podtrace records how long the agent of a node works on the start and the end of a Pod, and what it waits for: one record of
// package hop for each piece of work, over all its tries. A record is open while the work goes on, so that a pull that hangs
// can be seen.
package podtrace

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/hop"
	"proa.dev/kinds/nodereport"
)

// Recorder records the work of one node. A nil recorder records nothing.
type Recorder struct {
	node   string
	record func(hop.Record)
}

// New returns a recorder that hands every record to a function: first when the work begins, and again, with the same start, when
// something about it has changed. It returns nil if record is nil.
func New(node string, record func(hop.Record)) *Recorder {
	if record == nil {
		return nil
	}
	return &Recorder{node: node, record: record}
}

// Begin records that a piece of work on a Pod begins. Work on a static Pod is not recorded, because the API has only a mirror of
// it; then Begin returns nil, on which all methods do nothing.
func (r *Recorder) Begin(p *corev1.Pod, verb string) *Work {
	k := r.Prepare(p, verb, time.Now())
	k.Report()
	return k
}

// Prepare returns a piece of work that has begun at a certain time, without recording it yet.
func (r *Recorder) Prepare(p *corev1.Pod, verb string, start time.Time) *Work {
	if r == nil {
		return nil
	}
	rev, err := strconv.ParseInt(p.ResourceVersion, 10, 64)
	if err != nil {
		return nil
	}
	return &Work{send: r.record, rec: hop.Record{
		UID: p.UID, Rev: rev, Verb: verb, Resource: "pods", Namespace: p.Namespace, Name: p.Name, User: "system:node:" + r.node,
		Start: start, CauseUID: p.UID, CauseRev: rev, Open: true,
	}}
}

// Work is one piece of work on a Pod. All methods of a nil Work do nothing.
type Work struct {
	send func(hop.Record)

	mu       sync.Mutex // guards what follows
	rec      hop.Record
	current  *hop.Step // the step that is under way; nil for none
	parts    []*Part   // the steps that are under way beside it, those that wait last
	failures int
	pausedAt time.Time // when the last try failed; zero while a try is under way
	// waitsSince is when the first of the parts that wait now began; zero for none.
	waitsSince time.Time
}

// Report records the work as it is now.
func (k *Work) Report() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.report()
}

func (k *Work) report() {
	out := k.rec
	out.Took[hop.Node] = time.Since(out.Start)
	for _, since := range []time.Time{k.pausedAt, k.waitsSince} {
		if !since.IsZero() {
			out.Wait[hop.Node] += time.Since(since)
		}
	}
	out.Wait[hop.Node] = min(out.Wait[hop.Node], out.Took[hop.Node])
	out.Steps = k.withCurrent()
	for _, p := range k.parts {
		out.Steps = append(out.Steps, p.stepSoFar())
	}
	out.Steps = longest(out.Steps, nodereport.MaxSteps)
	k.send(out)
}

// Enter records that a named part of the work begins, with something worth knowing of it. The part before it has ended.
func (k *Work) Enter(name, detail string) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leave(false)
	k.current = &hop.Step{Hop: hop.Node, Name: nodereport.Text(name), Detail: nodereport.Text(detail), After: time.Since(k.rec.Start)}
	if k.rec.Open && k.failures == 0 { // later tries would say the same
		k.report()
	}
}

// Detail replaces what is worth knowing of the part that is under way.
func (k *Work) Detail(format string, args ...any) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current != nil {
		k.current.Detail = nodereport.Text(fmt.Sprintf(format, args...))
	}
}

// Progress replaces what is worth knowing of the step that is under way, and records it if it has changed. The caller limits how often.
func (k *Work) Progress(detail string) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	detail = nodereport.Text(detail)
	if k.current != nil && k.rec.Open && k.current.Detail != detail {
		k.current.Detail = detail
		k.report()
	}
}

// leave ends the part that is under way.
func (k *Work) leave(failed bool) {
	if k.current != nil {
		k.current.Failed = failed
		k.rec.Steps, k.current = k.withCurrent(), nil
	}
}

// withCurrent returns a copy of the steps, with the one that is under way.
func (k *Work) withCurrent() []hop.Step {
	out := slices.Clone(k.rec.Steps)
	if k.current != nil && len(out) < nodereport.MaxSteps {
		out = append(out, k.soFar(*k.current))
	}
	return out
}

// soFar returns a step that is under way with the time that it has taken so far.
func (k *Work) soFar(step hop.Step) hop.Step {
	step.Took = time.Since(k.rec.Start) - step.After
	return step
}

// Waited says that some of the time was spent waiting.
func (k *Work) Waited(d time.Duration) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rec.Wait[hop.Node] += max(d, 0)
}

// Failed says that a try has failed. The record stays open, and what follows until Retry counts as waiting.
func (k *Work) Failed(err error) {
	k.pause(func() (mustReport bool) {
		text := nodereport.Text(err.Error())
		isNews := text != k.rec.Error
		k.failures++
		k.rec.Error = text
		// Work that never succeeds would otherwise be reported every few seconds.
		return isNews && k.failures <= 32 || bits.OnesCount(uint(k.failures)) == 1
	})
}

// Postpone says that the next try was put off because of an earlier failure, which is why.
func (k *Work) Postpone(why error) {
	k.pause(func() (mustReport bool) {
		if k.rec.Error != "" {
			return false
		}
		k.rec.Error = nodereport.Text(why.Error())
		return true
	})
}

// pause ends a try of work that is open: the part that is under way has failed, and the work waits until Retry. note says so in the record,
// and returns whether to report it.
func (k *Work) pause(note func() (mustReport bool)) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.rec.Open {
		return
	}
	k.leave(true)
	if k.pausedAt = time.Now(); note() {
		k.report()
	}
}

// Retry says that the next try begins. The steps of the one before are forgotten. It reports whether there was one before.
func (k *Work) Retry() bool {
	return k.resume(func(hop.Step) bool { return true })
}

// Continue says that the next try begins and goes on where the one before has failed: only its failed steps are forgotten.
func (k *Work) Continue() {
	k.resume(func(s hop.Step) bool { return s.Failed })
}

// resume ends the waiting for the next try and forgets steps. It reports whether there was a try before.
func (k *Work) resume(forget func(hop.Step) bool) bool {
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pausedAt.IsZero() {
		return false
	}
	k.rec.Wait[hop.Node] += time.Since(k.pausedAt)
	k.pausedAt, k.current = time.Time{}, nil
	k.rec.Steps = slices.DeleteFunc(slices.Clone(k.rec.Steps), forget)
	return true
}

// Pause says that the work waits until Retry.
func (k *Work) Pause() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leave(false)
	k.pausedAt = time.Now()
}

// Done records that the work has succeeded.
func (k *Work) Done() {
	if k != nil {
		k.end("")
	}
}

// Abort records that the work is over without a success. The error is the last one of a try, or else why.
func (k *Work) Abort(why string) {
	if k != nil {
		k.end(why)
	}
}

// EndTry records how a try of the work has ended: it is done, or has failed and is tried again, or was cancelled with ctx because the Pod
// has begun to terminate.
func (k *Work) EndTry(ctx context.Context, err error) {
	switch {
	case err == nil:
		k.Done()
	case ctx.Err() != nil:
		k.Abort("cancelled, because the Pod or its node ends")
	default:
		k.Failed(err)
	}
}

// end ends the record. why is empty for a success.
func (k *Work) end(why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.rec.Open {
		return
	}
	k.leave(why != "")
	if k.rec.Open = false; why == "" {
		k.rec.Error = ""
	} else if k.rec.Error == "" {
		k.rec.Error = nodereport.Text(why)
	}
	if k.failures > 0 {
		k.countFailures()
	}
	k.report()
}

// countFailures says in the last step how many tries have failed before.
func (k *Work) countFailures() {
	text := "1 try failed"
	if k.failures > 1 {
		text = fmt.Sprintf("%d tries failed", k.failures)
	}
	if len(k.rec.Steps) == 0 {
		k.rec.Steps = []hop.Step{{Hop: hop.Node, Name: "tries", Detail: text}}
		return
	}
	last := &k.rec.Steps[len(k.rec.Steps)-1]
	if last.Detail != "" {
		text += ", " + last.Detail
	}
	last.Detail = nodereport.Text(text)
}

// hasEnded reports whether the work is over.
func (k *Work) hasEnded() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.rec.Open
}

// Works are the pieces of work on one Pod, by a name. It is for one goroutine.
type Works map[string]*Work

// Begin begins a piece of work, or the next try of one that has failed.
func (w Works) Begin(name string, begin func() *Work) *Work {
	if k := w[name]; k != nil && !k.hasEnded() {
		k.Retry()
		return k
	}
	k := begin()
	if k != nil {
		w[name] = k
	}
	return k
}

// Abort ends all work that has not succeeded.
func (w Works) Abort(why string) {
	for name, k := range w {
		k.Abort(why)
		delete(w, name)
	}
}
