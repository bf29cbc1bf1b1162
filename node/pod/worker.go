package pod

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/internal/wait"
	"proa.dev/kinds/lib/duration"
	"proa.dev/node/agentmetrics"
	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/interruption"
	"proa.dev/node/podstate"
	"proa.dev/node/podtrace"
)

// worker reconciles one Pod. One goroutine observes, decides, and starts the work; whatever takes time runs
// concurrently, at most one piece of work for each container, and wakes the goroutine when it ends. So a slow pull
// delays neither a probe nor the deletion of the Pod.
type worker struct {
	m        *Manager
	log      *slog.Logger
	observer observer
	name     types.NamespacedName
	uid      types.UID

	wake wait.Signal
	quit chan struct{} // closed when the worker has ended

	mu          sync.Mutex // guards what is below; the rest belongs to the goroutine of run
	pod         *corev1.Pod
	removed     bool // the Pod is in no source any more
	termination *podstate.Termination
	results     []func() // results of finished work, applied by run
	last        *fact.Pod
	// order is set while the node is being stopped; stopped and reported say how far that is.
	order             *stopOrder
	stopped, reported bool

	interruptions interruption.Set // the containers that were interrupted, valid once recordRead
	recordRead    bool

	mountedFor      *corev1.Pod // the version of the Pod for which the volumes were mounted
	volumes         bool
	images          map[string]*image
	busy            map[string]context.CancelFunc // by container, or by the name of work on the Pod as a whole
	waiting         map[string]fact.Waiting
	pullFailed      map[string]bool      // containers that wait because their image could not be pulled
	startNotBefore  map[string]time.Time // when the next start of a container may be attempted
	fails           map[string]int
	backoffs        backoffs
	backoffRecorded map[string]time.Time // the end of the run after which a BackOff Event was recorded
	retryAt         time.Time            // when volumes, sandbox or end may be attempted again
	ending          *ending
	setAside        bool      // an Event says so
	finished        bool      // nothing runs, and all resources are released
	allotted        allotment // what the node has agreed to, nil before the first step
	given           allotment // what the running containers were given
	pending         *corev1.PodCondition
	lastFit         Fit
	resizeError     string
	written         *corev1.Pod // the Pod as the last write of its status returned it, until the source has that version
	recorder        *agentmetrics.PodRecorder
	traced          podtrace.Works // the work whose records may be open
}

// The names of work on the Pod as a whole.
const (
	workVolumes = "/volumes"
	workSandbox = "/sandbox"
	workEnd     = "/end"
	workRelease = "/release"
	workResize  = "/resize"
)

// update gives the worker a newer version of the Pod.
func (w *worker) update(p *corev1.Pod) {
	w.mu.Lock()
	w.pod, w.removed = p, false
	w.mu.Unlock()
	w.wake.Send()
}

// sourceRemoved tells the worker that the Pod is in no source any more.
func (w *worker) sourceRemoved() {
	w.mu.Lock()
	w.removed = true
	w.mu.Unlock()
	w.wake.Send()
}

// lastFacts returns what was last observed of the Pod, nil before the first observation.
func (w *worker) lastFacts() *fact.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// isRemoved reports whether the Pod is in no source any more.
func (w *worker) isRemoved() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.removed
}

// deliver passes the result of a piece of work to the worker's goroutine.
func (w *worker) deliver(say func()) {
	w.mu.Lock()
	w.results = append(w.results, say)
	w.mu.Unlock()
	w.wake.Send()
}

// do starts a piece of work, unless one of that name is under way. When it ends, the function it returns is called by
// the worker's goroutine, and told whether the work was cancelled.
func (w *worker) do(ctx context.Context, name string, work func(context.Context) func(broken bool)) {
	if _, busy := w.busy[name]; busy {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	w.busy[name] = cancel
	w.m.work.Go(func() {
		say := work(ctx)
		broken := ctx.Err() != nil
		cancel()
		w.deliver(func() {
			delete(w.busy, name)
			if say != nil {
				say(broken)
			}
		})
	})
}

// doNoted starts a piece of work that does what the Pod says, and that may be what kills the agent. Ending a Pod is not, so that a Pod
// that is set aside can be deleted, nor is pulling its images, which containerd does.
func (w *worker) doNoted(ctx context.Context, name string, work func(context.Context) func(broken bool)) {
	w.do(ctx, name, func(ctx context.Context) func(bool) {
		defer w.m.Suspects.begin(ctx, w.uid)()
		return work(ctx)
	})
}

// run reconciles the Pod until it is removed or ctx ends.
func (w *worker) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		}
		w.mu.Lock()
		p, removed, termination, done := w.pod, w.removed, w.termination, w.results
		w.results = nil
		w.mu.Unlock()
		for _, say := range done {
			say()
		}
		w.recorder.BeginSync(p, removed || termination != nil || p.DeletionTimestamp != nil || podstate.IsTerminal(p.Status.Phase))
		again, over := w.step(ctx, p, removed, termination)
		w.recorder.EndSync(len(w.busy) > 0)
		if over {
			close(w.quit)
			return
		}
		timer.Stop()
		if again > 0 {
			timer.Reset(again)
		}
	}
}

// step reconciles the Pod once, and returns when to do so again.
func (w *worker) step(ctx context.Context, p *corev1.Pod, removed bool, termination *podstate.Termination) (again time.Duration,
	over bool) {
	p = latest(p, w.written)
	f, err := w.observer.observe(ctx, p.UID)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn("cannot look at the containers of a Pod", "err", err)
		}
		return time.Second, false
	}
	w.markInterrupted(p, f)
	w.mu.Lock()
	w.last = f
	w.mu.Unlock()
	now, order := time.Now(), w.stopOrder()
	if termination == nil {
		termination, again = w.deadline(p, now)
	}
	if termination == nil && !podstate.IsTerminal(p.Status.Phase) && p.DeletionTimestamp == nil &&
		podstate.CannotResume(p, f, order != nil) {
		termination = podstate.NodeShutdown(nil)
		w.terminate(termination)
	}
	if removed || p.DeletionTimestamp != nil || termination != nil || podstate.IsTerminal(p.Status.Phase) {
		w.traced.Abort("the Pod has ended")
		return w.end(ctx, p, f, removed, termination, order)
	}
	if w.m.mustWaitForName(w, p) {
		return again, false // that Pod's worker wakes this one when it ends
	}
	if why := w.m.Suspects.SetAside(p.UID, p.Generation); why != "" && order == nil {
		return w.showSetAside(ctx, p, f, why), false
	}
	p = w.allot(p, f)
	if order != nil {
		return w.pause(ctx, p, f, order), false
	}
	w.m.Probes.Sync(p, f)
	plan := podstate.ComputePlan(p, f, w.known(p, now))
	if w.volumes && w.volumesOutdated(p) {
		w.mount(ctx, p)
	}
	change, anew := w.pendingResizes(p, f)
	plan.Kill = append(plan.Kill, anew...)
	if len(change) > 0 && time.Until(w.retryAt) <= 0 {
		w.resize(ctx, p, f, change)
	}
	if plan.Done && len(w.busy) == 0 {
		return w.end(ctx, p, f, false, nil, order)
	}
	w.execute(ctx, p, f, &plan, now)
	if err := w.writeStatus(ctx, p, f, nil, false); err != nil {
		plan.WakeWithin(w.m.Retry)
	}
	if again > 0 {
		plan.WakeWithin(again)
	}
	return plan.WakeAfter, false
}

// volumesOutdated reports whether something has changed that volumes may show: labels, annotations, resources.
func (w *worker) volumesOutdated(p *corev1.Pod) bool {
	was := w.mountedFor
	return was == nil || was.Generation != p.Generation || !maps.Equal(was.Labels, p.Labels) || !maps.Equal(was.Annotations, p.Annotations)
}

// deadline returns the Termination on a Pod that has exceeded its active deadline, or how long it still has.
func (w *worker) deadline(p *corev1.Pod, now time.Time) (*podstate.Termination, time.Duration) {
	if p.Spec.ActiveDeadlineSeconds == nil || p.Status.StartTime == nil || podstate.IsTerminal(p.Status.Phase) {
		return nil, 0
	}
	left := duration.FromSeconds(*p.Spec.ActiveDeadlineSeconds) - now.Sub(p.Status.StartTime.Time)
	if left > 0 {
		return nil, left
	}
	v := &podstate.Termination{Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline"}
	w.m.Events.Event(event.Pod(p), corev1.EventTypeNormal, v.Reason, "%s", v.Message)
	w.terminate(v)
	return v, 0
}

// terminate ends the Pod as failed.
func (w *worker) terminate(v *podstate.Termination) {
	w.mu.Lock()
	if w.termination == nil {
		w.termination = v
	}
	w.mu.Unlock()
	w.wake.Send()
}

// known collects what the plan is computed from beside the facts.
func (w *worker) known(p *corev1.Pod, now time.Time) podstate.PlanInput {
	k := podstate.PlanInput{Volumes: w.volumes, Images: map[string]bool{}, Busy: map[string]bool{}, Hash: w.m.Maker.Hash}
	for name := range w.images {
		k.Images[name] = true
	}
	for name := range w.busy {
		k.Busy[name] = true
	}
	k.Health = func(id string) podstate.Health { return w.m.Probes.Of(p.UID, id) }
	k.Backoff = func(name string, ended time.Time) time.Duration {
		left, _ := w.backoffs.remaining(name, ended, now)
		return left
	}
	k.Hold = func(name string) time.Duration { return w.startNotBefore[name].Sub(now) }
	return k
}

// execute starts the work of a plan. Work that has to wait is retried in time.
func (w *worker) execute(ctx context.Context, p *corev1.Pod, f *fact.Pod, plan *podstate.Plan, now time.Time) {
	waits := w.retryAt.Sub(now)
	if plan.Volumes || plan.Sandbox != nil {
		if waits > 0 {
			plan.WakeWithin(waits)
		} else {
			if plan.Volumes {
				w.mount(ctx, p)
			}
			if plan.Sandbox != nil {
				w.createSandbox(ctx, p, f, *plan.Sandbox, plan.Recreated)
			}
		}
	}
	for _, name := range plan.Pull {
		w.pull(ctx, p, name)
	}
	for _, k := range plan.Kill {
		w.kill(ctx, p, f, k)
	}
	for _, name := range plan.Start {
		w.start(ctx, p, f, name, now)
	}
	for _, name := range plan.BackingOff {
		w.showBackoff(p, f, name, now)
	}
	if len(plan.Reset) > 0 {
		w.reset(ctx, plan.Reset)
	}
	w.removeOld(ctx, f)
}

// writeStatus writes the status of the Pod, if it has changed. A concurrent write by somebody else is not overwritten: the new
// version of the Pod wakes the worker, and the status is computed again.
func (w *worker) writeStatus(ctx context.Context, p *corev1.Pod, f *fact.Pod, termination *podstate.Termination, ended bool) error {
	seen := podstate.StatusInput{
		HostIPs: w.m.HostIPs(), Runtime: w.m.Runtime, Waiting: maps.Clone(w.waiting), Volumes: w.volumes, Ended: ended,
		Termination: termination, Now: time.Now(),
		Health: func(id string) podstate.Health { return w.m.Probes.Of(p.UID, id) }, Resizing: w.resizeConditions(p, f),
	}
	if w.m.Devices != nil {
		seen.Devices = func(c *corev1.Container) []corev1.ResourceStatus { return w.m.Devices.Health(p, c) }
	}
	st := podstate.ComputeStatus(p, f, seen)
	if w.m.TruncateMessages != nil {
		w.m.TruncateMessages(p, st)
	}
	if apiequality.Semantic.DeepEqual(&p.Status, st) {
		return nil
	}
	next, err := w.m.Statuses.Write(ctx, p, st)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Debug("the status of a Pod was not written; retrying", "err", err)
		}
		return err
	}
	w.written = next
	w.recorder.Status(p, f, st)
	return nil
}

// latest returns the newer of the Pod as its source has it and as the last write returned it: the source may be behind.
func latest(p, written *corev1.Pod) *corev1.Pod {
	if written == nil || written.UID != p.UID {
		return p
	}
	have, err := strconv.ParseInt(p.ResourceVersion, 10, 64)
	wrote, err2 := strconv.ParseInt(written.ResourceVersion, 10, 64)
	if err2 != nil || err == nil && have >= wrote {
		return p
	}
	return written
}

// showBackoff shows a container as waiting in CrashLoopBackOff, and records an Event once for each back-off.
func (w *worker) showBackoff(p *corev1.Pod, f *fact.Pod, name string, now time.Time) {
	run, found := f.Of(name)
	if !found {
		return
	}
	_, whole := w.backoffs.remaining(name, run.Finished, now)
	w.waiting[name] = fact.Waiting{Reason: "CrashLoopBackOff",
		Message: "back-off " + whole.String() + " restarting failed container=" + name + " pod=" + fact.FullName(p)}
	if w.backoffRecorded[name] != run.Finished {
		w.backoffRecorded[name] = run.Finished
		w.m.Events.Event(event.Container(p, name), corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s in pod %s",
			name, fact.FullName(p))
	}
}

// setAsidePause is how often it is looked whether a Pod that is set aside may be tried again.
const setAsidePause = time.Minute

// showSetAside shows that the node does not work on a Pod, and records an Event once.
func (w *worker) showSetAside(ctx context.Context, p *corev1.Pod, f *fact.Pod, why string) time.Duration {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		w.waiting[c.Name] = fact.Waiting{Reason: SetAsideReason, Message: why}
	}
	if !w.setAside {
		w.setAside = true
		w.m.Events.Event(event.Pod(p), corev1.EventTypeWarning, SetAsideReason, "The Pod is set aside: %s", why)
	}
	if err := w.writeStatus(ctx, p, f, nil, false); err != nil {
		return w.m.Retry
	}
	return setAsidePause
}

// SetAsideReason is the reason of the containers of a Pod that is set aside, and of the Event.
const SetAsideReason = "SetAside"

// removeOld removes what is not needed any more: all runs but the last two of each container, and sandboxes that have
// ended. A run that has ended stays for its logs, and the one before it for kubectl logs --previous.
func (w *worker) removeOld(ctx context.Context, f *fact.Pod) {
	seen := map[string]int{}
	var old []string
	for i := range f.Containers {
		c := &f.Containers[i]
		if seen[c.Name]++; seen[c.Name] > 2 && c.State == fact.Exited {
			old = append(old, c.ID)
		}
	}
	var boxes []string
	for i := range f.Sandboxes {
		s := &f.Sandboxes[i]
		holds := slices.ContainsFunc(f.Containers,
			func(c fact.Container) bool { return c.SandboxID == s.ID && !slices.Contains(old, c.ID) })
		if i > 0 && !s.Ready && !holds {
			boxes = append(boxes, s.ID)
		}
	}
	if len(old)+len(boxes) > 0 {
		w.remove(ctx, f, old, boxes)
	}
}
