package pod

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/podstate"
)

// stopOrder tells a worker to stop its containers because the node is being stopped. The Pod itself stays: its
// containers are restarted by the next agent, or when the order is revoked.
type stopOrder struct {
	limit time.Duration // the upper bound of the Pod's grace period
}

// limitGrace limits a grace period to what the order allows; a nil order allows any.
func (o *stopOrder) limitGrace(d time.Duration) time.Duration {
	if o == nil {
		return d
	}
	return min(d, o.limit)
}

// Hold keeps Pods that are new from now on from being started. Resume ends that.
func (m *Manager) Hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold = true
}

// Record records on disk that the running containers of a Pod are about to be interrupted.
func (m *Manager) Record(uid types.UID) error {
	x, here := m.Find(uid)
	if !here || x.Facts == nil {
		return nil
	}
	_, err := m.Interruptions.Add(uid, runningIDs(x.Facts)...)
	return err
}

// Interrupt stops the containers of a Pod because the node is being stopped, in their order and with their hooks. They
// have the Pod's grace period, but at most limit. A Pod with a container that may not be restarted ends as Failed.
func (m *Manager) Interrupt(uid types.UID, limit time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workers[uid]; w != nil {
		w.interrupt(&stopOrder{limit})
	}
}

// Resume revokes Hold and every Interrupt: what was stopped is started again.
func (m *Manager) Resume() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold = false
	for _, w := range m.workers {
		w.interrupt(nil)
		w.deliver(w.restoreRecord)
	}
}

// Stopped reports whether no container of an interrupted Pod runs any more, and whether its status in the API says so.
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

// interrupt gives the worker an order; nil revokes it.
func (w *worker) interrupt(o *stopOrder) {
	w.mu.Lock()
	w.order, w.stopped, w.reported = o, false, false
	w.mu.Unlock()
	w.wake.Send()
}

// stopOrder returns the worker's order, nil if it has none.
func (w *worker) stopOrder() *stopOrder {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.order
}

// setStopProgress records how far the stop of the Pod's containers is.
func (w *worker) setStopProgress(stopped, reported bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped, w.reported = stopped, reported
}

// pause takes an interrupted Pod one step further: work under way is cancelled, then its containers are stopped. Its
// sandbox stays, and with it the Pod's address.
func (w *worker) pause(ctx context.Context, p *corev1.Pod, f *fact.Pod, o *stopOrder) time.Duration {
	w.cancelStarts()
	switch {
	case w.starting():
		return 0
	case podstate.HasActiveContainer(f):
		if err := w.recordInterruption(f); err != nil {
			w.log.Error("a Pod cannot be interrupted; retrying", "err", err)
			return time.Second
		}
		if wait := time.Until(w.retryAt); wait > 0 {
			return wait
		}
		w.m.Probes.Sync(p, f)
		w.m.Probes.Terminating(p.UID)
		w.stopContainers(ctx, p, f, o.limitGrace(grace(p, nil)))
		_ = w.writeStatus(ctx, p, f, nil, false)
		return 0
	case len(w.busy) > 0:
		return 0
	}
	w.m.Probes.Forget(p.UID) // the next runs are probed from the beginning
	if p.Status.StartTime == nil {
		w.setStopProgress(true, true) // the node has not admitted the Pod yet; the next agent decides about that
		return 0
	}
	if err := w.writeStatus(ctx, p, f, nil, false); err != nil {
		w.setStopProgress(true, false)
		return w.m.Retry
	}
	w.setStopProgress(true, true)
	return 0
}

// stopContainers stops the containers of the Pod, but not its sandbox.
func (w *worker) stopContainers(ctx context.Context, p *corev1.Pod, f *fact.Pod, within time.Duration) {
	w.do(ctx, workEnd, func(ctx context.Context) func(bool) {
		err := w.stopRunning(ctx, p, f, within, nil)
		return func(broken bool) {
			if err == nil || broken {
				return
			}
			w.m.Events.Event(event.Pod(p), corev1.EventTypeWarning, "FailedKillPod", "error killing pod: %v", err)
			w.retry(workEnd)
		}
	})
}

// cancelStarts cancels all work that would start something.
func (w *worker) cancelStarts() {
	for name, cancel := range w.busy {
		if name != workEnd && name != workRelease {
			cancel()
		}
	}
}

// starting reports whether work on a single container is under way. It ends soon once it is cancelled, but a container
// that is just being started must be observed before the Pod is stopped.
func (w *worker) starting() bool {
	for name := range w.busy {
		if !strings.HasPrefix(name, "/") {
			return true
		}
	}
	return false
}

// restoreRecord removes the containers from the record that were to be interrupted but have not been stopped.
func (w *worker) restoreRecord() {
	if err := w.m.Interruptions.Put(w.pod.UID, w.interruptions); err != nil {
		w.log.Error("containers that go on are recorded as interrupted", "err", err)
	}
}

// recordInterruption records on disk that the running containers are about to be interrupted.
func (w *worker) recordInterruption(f *fact.Pod) (err error) {
	w.interruptions, err = w.m.Interruptions.Add(f.UID, runningIDs(f)...)
	return err
}

// runningIDs returns the containers that run, or may run.
func runningIDs(f *fact.Pod) (out []string) {
	for i := range f.Containers {
		if c := &f.Containers[i]; c.State == fact.Running || c.State == fact.Unknown {
			out = append(out, c.ID)
		}
	}
	return out
}

// markInterrupted sets Interrupted on the runs of the Pod that were interrupted: those that the record names, and those that ended
// unobserved before the machine booted. A record that names no remaining run is deleted.
func (w *worker) markInterrupted(p *corev1.Pod, f *fact.Pod) {
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
		if c.State != fact.Exited || !recorded && (newest != c || !podstate.EndedBeforeBoot(p, c, w.m.BootTime)) {
			continue
		}
		podstate.MarkInterrupted(c)
	}
	if !left && !w.interruptions.Empty() {
		if err := w.m.Interruptions.Remove(f.UID); err != nil {
			w.log.Warn("an old record stays", "err", err)
			return
		}
		w.interruptions.Clear()
	}
}
