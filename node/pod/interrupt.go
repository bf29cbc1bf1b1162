package pod

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/fact"
)

// reasonTerminated is the reason in the status of a Pod that ended because its node stops, and of a container that had to.
const reasonTerminated = "Terminated"

// NodeShutdown is the verdict on a Pod that ends because its node stops. within is how long it has, in seconds; nil for its own grace
// period.
func NodeShutdown(within *int64) *Verdict {
	return &Verdict{
		Reason: reasonTerminated, Message: "Pod was terminated in response to imminent node shutdown.",
		Disrupted: corev1.PodReasonTerminationByKubelet, Grace: within,
	}
}

// interruptedWaiting is how the status shows a container that was stopped because the node stops, and that runs again.
func interruptedWaiting() fact.Waiting {
	return fact.Waiting{Reason: "NodeShutdown", Message: "The container was stopped because its node stops; it starts again with the node"}
}

// stopOrder is an order to stop the containers of a Pod because the node stops. The Pod itself stays: its containers start again
// with the next agent, or when the order is taken back.
type stopOrder struct {
	limit time.Duration // the most that the Pod's grace period may be
}

// within shortens a grace period to what the order allows; no order, nil, allows any.
func (o *stopOrder) within(d time.Duration) time.Duration {
	if o == nil {
		return d
	}
	return min(d, o.limit)
}

// Hold lets Pods that are new from now on wait: nothing of them is started. Resume ends it.
func (m *Manager) Hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold = true
}

// Record writes down that the running containers of a Pod are about to be interrupted.
func (m *Manager) Record(uid types.UID) error {
	x, here := m.Find(uid)
	if !here || x.Facts == nil {
		return nil
	}
	_, err := m.Interruptions.Add(uid, runningIDs(x.Facts)...)
	return err
}

// Interrupt stops the containers of a Pod because the node stops, each in its order and with its hooks. They have the Pod's grace
// period, but at most limit. A Pod with a container that may not run again ends as Failed.
func (m *Manager) Interrupt(uid types.UID, limit time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workers[uid]; w != nil {
		w.interrupt(&stopOrder{limit})
	}
}

// Resume takes back Hold and every Interrupt: what was stopped starts again.
func (m *Manager) Resume() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold = false
	for _, w := range m.workers {
		w.interrupt(nil)
		w.report(w.unrecord)
	}
}

// Stopped tells of an interrupted Pod whether no container of it runs any more, and whether its status in the API says so.
func (m *Manager) Stopped(uid types.UID) (stopped, reported bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.workers[uid]
	if w == nil {
		return true, true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopped, w.reported
}

// interrupt hands an order to the worker; nil takes it back.
func (w *worker) interrupt(o *stopOrder) {
	w.mu.Lock()
	w.order, w.stopped, w.reported = o, false, false
	w.mu.Unlock()
	w.poke()
}

// interrupted returns the order that the worker has; nil for none.
func (w *worker) interrupted() *stopOrder {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.order
}

// progress notes how far the end of the Pod's containers is.
func (w *worker) progress(stopped, reported bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped, w.reported = stopped, reported
}

// pause takes an interrupted Pod one step further: what is under way is broken off, then its containers are stopped. Its sandbox stays,
// and with it the Pod's address.
func (w *worker) pause(ctx context.Context, p *corev1.Pod, f *fact.Pod, o *stopOrder) time.Duration {
	w.cancelStarts()
	switch {
	case w.starting():
		return 0
	case active(f):
		if err := w.record(f); err != nil {
			w.log.Error("a Pod cannot be interrupted; it is tried again", "err", err)
			return time.Second
		}
		if wait := time.Until(w.retryAt); wait > 0 {
			return wait
		}
		w.m.Probes.Sync(p, f)
		w.m.Probes.Terminating(p.UID)
		w.stopContainers(ctx, p, f, o.within(grace(p, nil)))
		_ = w.show(ctx, p, f, nil, false)
		return 0
	case len(w.busy) > 0:
		return 0
	}
	w.m.Probes.Forget(p.UID) // the next runs begin anew
	if p.Status.StartTime == nil {
		w.progress(true, true) // the node has not taken the Pod yet, and whoever starts next decides about that
		return 0
	}
	if err := w.show(ctx, p, f, nil, false); err != nil {
		w.progress(true, false)
		return w.m.Retry
	}
	w.progress(true, true)
	return 0
}

// stopContainers stops the containers of the Pod, and leaves its sandbox.
func (w *worker) stopContainers(ctx context.Context, p *corev1.Pod, f *fact.Pod, within time.Duration) {
	w.do(ctx, workEnd, func(ctx context.Context) func(bool) {
		err := w.stopRunning(ctx, p, f, within)
		return func(broken bool) {
			if err == nil || broken {
				return
			}
			w.m.Events.Event(p, "", corev1.EventTypeWarning, "FailedKillPod", "error killing pod: %v", err)
			w.retry(workEnd)
		}
	})
}

// cancelStarts breaks off everything that would start something.
func (w *worker) cancelStarts() {
	for name, cancel := range w.busy {
		if name != workEnd && name != workRelease {
			cancel()
		}
	}
}

// starting tells whether work on a single container is under way. It ends soon once it is broken off, but a container that is just being
// started must be seen before the Pod is stopped.
func (w *worker) starting() bool {
	for name := range w.busy {
		if !strings.HasPrefix(name, "/") {
			return true
		}
	}
	return false
}

// unrecord takes the containers out of the record that were to be interrupted and have not been told so.
func (w *worker) unrecord() {
	if err := w.m.Interruptions.Put(w.pod.UID, w.interruptions); err != nil {
		w.log.Error("containers that go on are recorded as interrupted", "err", err)
	}
}

// record writes down that what runs is about to be interrupted.
func (w *worker) record(f *fact.Pod) (err error) {
	w.interruptions, err = w.m.Interruptions.Add(f.UID, runningIDs(f)...)
	return err
}

// runningIDs are the containers that run, or may.
func runningIDs(f *fact.Pod) (out []string) {
	for i := range f.Containers {
		if c := &f.Containers[i]; c.State == fact.Running || c.State == fact.Unknown {
			out = append(out, c.ID)
		}
	}
	return out
}

// mark finds out which runs of the Pod were interrupted: those that the record names, and those whose end nobody saw before the machine
// went down. A record of which nothing is left goes.
func (w *worker) mark(p *corev1.Pod, f *fact.Pod) {
	if !w.recordRead {
		var err error
		if w.interruptions, err = w.m.Interruptions.Of(f.UID); err != nil {
			w.log.Error("no container of the Pod is taken for successful", "err", err)
		}
		w.recordRead = true
	}
	left := false
	for i := range f.Containers {
		c := &f.Containers[i]
		recorded := w.interruptions.Has(c.ID)
		left = left || recorded
		newest, _ := f.Of(c.Name)
		if c.State != fact.Exited || !recorded && (newest != c || !lostWithMachine(p, c, w.m.Booted)) {
			continue
		}
		interruptRun(c)
	}
	if !left && !w.interruptions.Empty() {
		if err := w.m.Interruptions.Remove(f.UID); err != nil {
			w.log.Warn("an old record stays", "err", err)
			return
		}
		w.interruptions.Clear()
	}
}

// interruptRun notes that a run was interrupted. Its exit code stays what it was.
func interruptRun(c *fact.Container) {
	c.Interrupted = true
	if c.Reason == "Completed" || c.Reason == "Error" {
		c.Reason = reasonTerminated
	}
}

// lostWithMachine tells whether a run ended in an earlier boot of the machine without anybody having seen it: who knows whether it was
// done. Of static Pods nobody remembers what was seen.
func lostWithMachine(p *corev1.Pod, run *fact.Container, booted time.Time) bool {
	if booted.IsZero() || fact.Static(p) {
		return false
	}
	for _, st := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses) {
		for _, end := range []*corev1.ContainerStateTerminated{st.State.Terminated, st.LastTerminationState.Terminated} {
			if end == nil {
				continue
			}
			if _, id, _ := cutID(end.ContainerID); id == run.ID {
				return end.Reason == reasonTerminated
			}
		}
	}
	return run.Finished.Before(booted)
}

// paused tells whether the regular containers were interrupted and none runs: they begin anew, after the sidecars.
func paused(p *corev1.Pod, f *fact.Pod) bool {
	some := false
	for i := range p.Spec.Containers {
		run, found := f.Of(p.Spec.Containers[i].Name)
		switch {
		case !found:
		case run.State == fact.Running:
			return false
		case run.State == fact.Exited && run.Interrupted:
			some = true
		}
	}
	return some
}

// cannotResume tells whether a container was interrupted that may not run again, so that its Pod has failed. While the Pod is being
// interrupted, what runs counts too.
func cannotResume(p *corev1.Pod, f *fact.Pod, interrupting bool) bool {
	hasBegun := begun(p, f)
	for c := range containers(p) {
		run, found := f.Of(c.Name)
		if !found || hasBegun && initOnly(p, c) {
			continue
		}
		runs := interrupting && (run.State == fact.Running || run.State == fact.Unknown)
		if (runs || run.State == fact.Exited && run.Interrupted) && !restarts(p, c, exit{run.ExitCode, true}) {
			return true
		}
	}
	return false
}
