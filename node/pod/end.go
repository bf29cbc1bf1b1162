package pod

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/fact"
)

// ending is the way a Pod goes: its containers are stopped, its status says how they ended, what it used is given back, and
// at last, if it was deleted, it is taken out of the API.
type ending struct {
	within time.Duration // the time its containers have
	began  time.Time
}

// end takes a Pod one step further to its end.
func (w *worker) end(ctx context.Context, p *corev1.Pod, f *fact.Pod, gone bool, v *Verdict, order *stopOrder) (again time.Duration, over bool) {
	var own *int64
	if v != nil {
		own = v.Grace
	}
	if gone && p.DeletionTimestamp == nil && v == nil && !terminal(p.Status.Phase) {
		own = new(int64(0)) // nobody is left who could wait for it
		if fact.Static(p) {
			own = nil
		}
	}
	within := order.within(grace(p, own))
	w.hurry(within)
	if w.starting() {
		return 0, false
	}
	w.progress(!active(f), false)
	if wait := time.Until(w.retryAt); wait > 0 {
		return wait, false
	}
	if running(f) {
		if v != nil && v.Reason == reasonTerminated {
			if err := w.record(f); err != nil {
				w.log.Error("a Pod cannot be interrupted; it is tried again", "err", err)
				return time.Second, false
			}
		}
		w.m.Probes.Sync(p, f)
		if p.DeletionTimestamp == nil {
			w.m.Probes.Terminating(p.UID)
		}
		w.halt(ctx, p, f, within)
		if !gone {
			_ = w.show(ctx, p, f, v, false)
		}
		return 0, false
	}
	if len(w.busy) > 0 {
		return 0, false // what is under way ends soon: it was told to
	}
	if w.m.Devices != nil && w.m.Devices.Holds(p.UID) {
		w.putAway(ctx, p) // before anybody is told that the Pod has ended: what it had may be given to another then
		return 0, false
	}
	if !gone && w.show(ctx, p, f, v, true) != nil {
		return w.m.Retry, false
	}
	w.progress(true, true)
	if !w.finished {
		w.giveBack(ctx, p)
		return 0, false
	}
	return w.depart(ctx, p, f, gone)
}

// hurry lets what is under way end, and when the Pod has less time than it had before, ends it at once.
func (w *worker) hurry(within time.Duration) {
	if w.ending == nil {
		w.ending = &ending{within: within, began: time.Now()}
		w.cancelStarts()
		return
	}
	if within < w.ending.within {
		w.ending.within = within
		if cancel := w.busy[workEnd]; cancel != nil {
			cancel()
		}
	}
}

// running says that something of the Pod is still up.
func running(f *fact.Pod) bool {
	return active(f) || slices.ContainsFunc(f.Sandboxes, func(s fact.Sandbox) bool { return s.Ready })
}

// halt stops everything of the Pod.
func (w *worker) halt(ctx context.Context, p *corev1.Pod, f *fact.Pod, within time.Duration) {
	w.do(ctx, workEnd, func(ctx context.Context) func(bool) {
		err := w.stopAll(ctx, p, f, within)
		return func(broken bool) {
			if err == nil || broken {
				return
			}
			w.m.Events.Event(p, "", corev1.EventTypeWarning, "FailedKillPod", "error killing pod: %v", err)
			w.retry(workEnd)
		}
	})
}

// putAway returns the devices of the Pod.
func (w *worker) putAway(ctx context.Context, p *corev1.Pod) {
	w.do(ctx, workEnd, func(ctx context.Context) func(bool) {
		err := w.m.Devices.Release(ctx, p.UID)
		return func(broken bool) {
			if err != nil && !broken {
				w.log.Warn("the devices of a Pod could not be given back; it is tried again", "err", err)
				w.retry(workEnd)
			}
		}
	})
}

// giveBack returns what the Pod had of the node.
func (w *worker) giveBack(ctx context.Context, p *corev1.Pod) {
	w.m.Probes.Forget(p.UID)
	w.do(ctx, workEnd, func(ctx context.Context) func(bool) {
		err := w.m.release(ctx, p.UID)
		return func(broken bool) {
			if err == nil {
				w.finished, w.volumes = true, false
				w.m.freed()
				return
			}
			if !broken {
				w.log.Warn("the volumes or groups of a Pod could not be given back; it is tried again", "err", err)
				w.retry(workEnd)
			}
		}
	})
}

// depart ends the worker once the Pod is gone from the API, after it was taken out of it where it was deleted. A Pod that
// has finished stays for its logs.
func (w *worker) depart(ctx context.Context, p *corev1.Pod, f *fact.Pod, gone bool) (time.Duration, bool) {
	if !gone {
		if p.DeletionTimestamp != nil {
			if err := w.m.Statuses.Delete(ctx, p); err != nil {
				w.log.Debug("a Pod could not be taken out of the API; it is tried again", "err", err)
				return w.m.Retry, false
			}
		}
		w.sweep(ctx, f)
		return 0, false
	}
	var runs, boxes []string
	for i := range f.Containers {
		runs = append(runs, f.Containers[i].ID)
	}
	for i := range f.Sandboxes {
		boxes = append(boxes, f.Sandboxes[i].ID)
	}
	if err := w.removeNow(ctx, f, runs, boxes); err != nil {
		w.log.Warn("what is left of a Pod could not be removed; it is tried again", "err", err)
		return time.Second, false
	}
	if err := w.m.erase(ctx, p); err != nil {
		w.log.Warn("the folder of a Pod could not be removed; it is tried again", "err", err)
		return time.Second, false
	}
	return 0, true
}
