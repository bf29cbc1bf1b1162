package pod

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/hop"
	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/podstate"
	"proa.dev/node/podtrace"
)

// ending is the state of a Pod that terminates: its containers are stopped, its status says how they ended, what it
// used is released, and if it was deleted, it is removed from the API.
type ending struct {
	within time.Duration // the grace period of its containers
	began  time.Time
	// traced is the record of the stop; nil for a Pod that has ended by itself.
	traced *podtrace.Work
}

// end takes a terminating Pod one step further.
func (w *worker) end(ctx context.Context, p *corev1.Pod, f *fact.Pod, removed bool, v *podstate.Termination,
	order *stopOrder) (again time.Duration, over bool) {
	var own *int64
	if v != nil {
		own = v.Grace
	}
	if removed && p.DeletionTimestamp == nil && v == nil && !podstate.IsTerminal(p.Status.Phase) {
		own = new(int64(0)) // no object is left that could have a grace period
		if fact.Static(p) {
			own = nil
		}
	}
	within := order.limitGrace(grace(p, own))
	w.shortenGrace(within)
	if isOrdered := removed || p.DeletionTimestamp != nil || v != nil; isOrdered {
		w.traceStop(p, f)
	}
	if w.starting() {
		return 0, false
	}
	w.setStopProgress(!podstate.HasActiveContainer(f), false)
	if wait := time.Until(w.retryAt); wait > 0 {
		return wait, false
	}
	w.ending.traced.Continue()
	if running(f) {
		if v != nil && v.Reason == podstate.ReasonTerminated {
			if err := w.recordInterruption(f); err != nil {
				w.log.Error("a Pod cannot be interrupted; retrying", "err", err)
				return time.Second, false
			}
		}
		w.m.Probes.Sync(p, f)
		if p.DeletionTimestamp == nil {
			w.m.Probes.Terminating(p.UID)
		}
		w.stopPod(ctx, p, f, within)
		if !removed {
			_ = w.writeStatus(ctx, p, f, v, false)
		}
		return 0, false
	}
	if len(w.busy) > 0 {
		return 0, false // the work under way has been cancelled and ends soon
	}
	if w.m.Devices != nil && w.m.Devices.Holds(p.UID) {
		w.releaseDevices(ctx, p) // before the status says that the Pod has ended: its devices may be given to another Pod from then on
		return 0, false
	}
	if !removed && w.writeStatus(ctx, p, f, v, true) != nil {
		return w.m.Retry, false
	}
	w.setStopProgress(true, true)
	if !w.finished {
		w.releaseResources(ctx, p)
		return 0, false
	}
	w.ending.traced.Done()
	return w.removePod(ctx, p, f, removed)
}

// shortenGrace cancels the work that would start something, and if the grace period has become shorter than before, also the
// stop under way, which is then started anew.
func (w *worker) shortenGrace(within time.Duration) {
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

// traceStop begins the record of the stop of a Pod that somebody or the node ends, unless the Pod has ended by itself or nothing of it
// runs.
func (w *worker) traceStop(p *corev1.Pod, f *fact.Pod) {
	if w.ending.traced == nil && !podstate.IsTerminal(p.Status.Phase) && (running(f) || len(w.busy) > 0) {
		w.ending.traced = w.m.Trace.Begin(p, hop.Stop)
	}
}

// running reports whether a container or a sandbox of the Pod still runs.
func running(f *fact.Pod) bool {
	return podstate.HasActiveContainer(f) || slices.ContainsFunc(f.Sandboxes, func(s fact.Sandbox) bool { return s.Ready })
}

// stopPod stops all containers and sandboxes of the Pod.
func (w *worker) stopPod(ctx context.Context, p *corev1.Pod, f *fact.Pod, within time.Duration) {
	traced, agent := w.ending.traced, ctx
	w.do(ctx, workEnd, func(ctx context.Context) func(bool) {
		err := w.stopAll(ctx, p, f, within, traced)
		switch {
		case agent.Err() != nil:
			traced.Abort("the agent of the node ends")
		case err != nil && ctx.Err() == nil:
			traced.Failed(err)
		}
		return func(broken bool) {
			if err == nil || broken {
				return
			}
			w.m.Events.Event(event.Pod(p), corev1.EventTypeWarning, "FailedKillPod", "error killing pod: %v", err)
			w.retry(workEnd)
		}
	})
}

// releaseDevices releases the devices of the Pod.
func (w *worker) releaseDevices(ctx context.Context, p *corev1.Pod) {
	traced := w.ending.traced
	w.do(ctx, workEnd, func(ctx context.Context) func(bool) {
		err := traced.Do(ctx, "devices", func() error { return w.m.Devices.Release(ctx, p.UID) })
		return func(broken bool) {
			if err != nil && !broken {
				w.log.Warn("the devices of a Pod could not be given back; retrying", "err", err)
				w.retry(workEnd)
			}
		}
	})
}

// releaseResources releases the volumes and cgroups of the Pod.
func (w *worker) releaseResources(ctx context.Context, p *corev1.Pod) {
	w.m.Probes.Forget(p.UID)
	traced := w.ending.traced
	w.do(ctx, workEnd, func(ctx context.Context) func(bool) {
		err := traced.Do(ctx, "volumes", func() error { return w.m.release(ctx, p.UID) })
		return func(broken bool) {
			if err == nil {
				w.finished, w.volumes = true, false
				w.m.freed()
				return
			}
			if !broken {
				w.log.Warn("the volumes or groups of a Pod could not be given back; retrying", "err", err)
				w.retry(workEnd)
			}
		}
	})
}

// removePod ends the worker once the Pod has disappeared from its source. A Pod that was deleted is removed from the API
// first; a Pod that has only finished stays, for its logs.
func (w *worker) removePod(ctx context.Context, p *corev1.Pod, f *fact.Pod, removed bool) (time.Duration, bool) {
	if !removed {
		if p.DeletionTimestamp != nil {
			if err := w.m.Statuses.Delete(ctx, p); err != nil {
				w.log.Debug("a Pod could not be taken out of the API; retrying", "err", err)
				return w.m.Retry, false
			}
		}
		w.removeOld(ctx, f)
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
		w.log.Warn("what is left of a Pod could not be removed; retrying", "err", err)
		return time.Second, false
	}
	if err := w.m.removeFolders(ctx, p); err != nil {
		w.log.Warn("the folder of a Pod could not be removed; retrying", "err", err)
		return time.Second, false
	}
	return 0, true
}
