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

	"proa.dev/kinds/period"
	"proa.dev/node/fact"
	"proa.dev/node/interruption"
)

// worker takes care of one Pod. One goroutine looks, decides, and starts what is to be done; everything that takes time is
// done beside it, by at most one piece of work a container, and ends by waking it. So a slow pull keeps neither a probe nor
// the deletion waiting.
type worker struct {
	m    *Manager
	log  *slog.Logger
	eye  eye
	name types.NamespacedName

	wake chan struct{} // of 1: something has happened
	quit chan struct{} // closed when the Pod is gone from here

	mu      sync.Mutex // guards what is below; the rest belongs to the goroutine
	pod     *corev1.Pod
	gone    bool // it is no longer in any source
	verdict *Verdict
	done    []func() // what finished work has to say
	last    *fact.Pod
	// order is set while the node stops; stopped and reported tell how far that is.
	order             *stopOrder
	stopped, reported bool

	interruptions interruption.Set // the containers that were interrupted, once recordRead
	recordRead    bool

	shown       *corev1.Pod // the Pod that its volumes show
	volumes     bool
	images      map[string]*image
	busy        map[string]context.CancelFunc // by container, or by what is done to the Pod as a whole
	waiting     map[string]fact.Waiting
	unpulled    map[string]bool      // containers that wait because their image could not be pulled
	hold        map[string]time.Time // when the next start of a container may be tried
	fails       map[string]int
	backoffs    backoffs
	told        map[string]time.Time // the end of a run after which the wait was told
	retryAt     time.Time            // when volumes, sandbox or end may be tried again
	ending      *ending
	finished    bool      // nothing runs, and everything is given back
	allotted    allotment // what the node has agreed to, nil before the first look
	given       allotment // what the containers that run were given
	pending     *corev1.PodCondition
	toldFit     Fit
	resizeError string
	newer       *corev1.Pod // the Pod as the last write of its status left it, until the source shows it
}

// The names of work on the Pod as a whole.
const (
	workVolumes = "/volumes"
	workSandbox = "/sandbox"
	workEnd     = "/end"
	workRelease = "/release"
	workResize  = "/resize"
)

// update hands over a newer state of the Pod.
func (w *worker) update(p *corev1.Pod) {
	w.mu.Lock()
	w.pod, w.gone = p, false
	w.mu.Unlock()
	w.poke()
}

// leave says that the Pod is in no source any more.
func (w *worker) leave() {
	w.mu.Lock()
	w.gone = true
	w.mu.Unlock()
	w.poke()
}

// left says whether the Pod is in no source any more.
func (w *worker) left() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone
}

// poke wakes the worker.
func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// report brings back what a piece of work found out.
func (w *worker) report(say func()) {
	w.mu.Lock()
	w.done = append(w.done, say)
	w.mu.Unlock()
	w.poke()
}

// do starts a piece of work. When it ends, what it returns is called by the worker's goroutine, and told whether the work
// was broken off.
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
		w.report(func() {
			delete(w.busy, name)
			if say != nil {
				say(broken)
			}
		})
	})
}

// run works until the Pod is gone or ctx ends.
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
		p, gone, verdict, done := w.pod, w.gone, w.verdict, w.done
		w.done = nil
		w.mu.Unlock()
		for _, say := range done {
			say()
		}
		again, over := w.step(ctx, p, gone, verdict)
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

// step looks once, does what is to be done, and says when to look again.
func (w *worker) step(ctx context.Context, p *corev1.Pod, gone bool, verdict *Verdict) (again time.Duration, over bool) {
	p = latest(p, w.newer)
	f, err := w.eye.look(ctx, p.UID)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn("cannot look at the containers of a Pod", "err", err)
		}
		return time.Second, false
	}
	w.mark(p, f)
	w.mu.Lock()
	w.last = f
	w.mu.Unlock()
	now, order := time.Now(), w.interrupted()
	if verdict == nil {
		verdict, again = w.deadline(p, now)
	}
	if verdict == nil && !terminal(p.Status.Phase) && p.DeletionTimestamp == nil && cannotResume(p, f, order != nil) {
		verdict = NodeShutdown(nil)
		w.judge(verdict)
	}
	if gone || p.DeletionTimestamp != nil || verdict != nil || terminal(p.Status.Phase) {
		return w.end(ctx, p, f, gone, verdict, order)
	}
	if w.m.follows(w, p) {
		return again, false // who ends wakes us
	}
	p = w.allot(p, f)
	if order != nil {
		return w.pause(ctx, p, f, order), false
	}
	w.m.Probes.Sync(p, f)
	plan := decide(p, f, w.known(p, now))
	if w.volumes && w.renamed(p) {
		w.mount(ctx, p)
	}
	change, anew := w.resizes(p, f)
	plan.Kill = append(plan.Kill, anew...)
	if len(change) > 0 && time.Until(w.retryAt) <= 0 {
		w.resize(ctx, p, f, change)
	}
	if plan.Done && len(w.busy) == 0 {
		return w.end(ctx, p, f, false, nil, order)
	}
	w.carry(ctx, p, f, &plan, now)
	if err := w.show(ctx, p, f, nil, false); err != nil {
		plan.look(w.m.Retry)
	}
	if again > 0 {
		plan.look(again)
	}
	return plan.Again, false
}

// renamed says that something has changed that volumes may show: labels, annotations, resources.
func (w *worker) renamed(p *corev1.Pod) bool {
	was := w.shown
	return was == nil || was.Generation != p.Generation || !maps.Equal(was.Labels, p.Labels) || !maps.Equal(was.Annotations, p.Annotations)
}

// deadline is the verdict on a Pod that has been active for too long.
func (w *worker) deadline(p *corev1.Pod, now time.Time) (*Verdict, time.Duration) {
	if p.Spec.ActiveDeadlineSeconds == nil || p.Status.StartTime == nil || terminal(p.Status.Phase) {
		return nil, 0
	}
	left := period.Seconds(*p.Spec.ActiveDeadlineSeconds) - now.Sub(p.Status.StartTime.Time)
	if left > 0 {
		return nil, left
	}
	v := &Verdict{Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline"}
	w.m.Events.Event(p, "", corev1.EventTypeNormal, v.Reason, "%s", v.Message)
	w.judge(v)
	return v, 0
}

// judge ends the Pod as failed.
func (w *worker) judge(v *Verdict) {
	w.mu.Lock()
	if w.verdict == nil {
		w.verdict = v
	}
	w.mu.Unlock()
	w.poke()
}

// known is what the agent knows beside the facts.
func (w *worker) known(p *corev1.Pod, now time.Time) Known {
	k := Known{Volumes: w.volumes, Images: map[string]bool{}, Busy: map[string]bool{}, Hash: w.m.Maker.Hash}
	for name := range w.images {
		k.Images[name] = true
	}
	for name := range w.busy {
		k.Busy[name] = true
	}
	k.Health = func(id string) Health { return w.m.Probes.Of(p.UID, id) }
	k.Backoff = func(name string, ended time.Time) time.Duration {
		left, _ := w.backoffs.left(name, ended, now)
		return left
	}
	k.Hold = func(name string) time.Duration { return w.hold[name].Sub(now) }
	return k
}

// carry starts what a plan says. What has to wait is looked at again in time.
func (w *worker) carry(ctx context.Context, p *corev1.Pod, f *fact.Pod, plan *Plan, now time.Time) {
	waits := w.retryAt.Sub(now)
	if plan.Volumes || plan.Sandbox != nil {
		if waits > 0 {
			plan.look(waits)
		} else {
			if plan.Volumes {
				w.mount(ctx, p)
			}
			if plan.Sandbox != nil {
				w.sandbox(ctx, p, f, *plan.Sandbox, plan.Changed)
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
	for _, name := range plan.Backing {
		w.back(p, f, name, now)
	}
	if len(plan.Reset) > 0 {
		w.reset(ctx, plan.Reset)
	}
	w.sweep(ctx, f)
}

// show writes the status of the Pod, if it has changed. Who wrote in between is not overwritten: the next state of the Pod
// wakes the worker, and it is worked out anew.
func (w *worker) show(ctx context.Context, p *corev1.Pod, f *fact.Pod, verdict *Verdict, ended bool) error {
	seen := Seen{
		HostIPs: w.m.HostIPs(), Runtime: w.m.Runtime, Waiting: maps.Clone(w.waiting), Volumes: w.volumes, Ended: ended, Verdict: verdict, Now: time.Now(),
		Health: func(id string) Health { return w.m.Probes.Of(p.UID, id) }, Resizing: w.resizing(p, f),
	}
	if w.m.Devices != nil {
		seen.Devices = func(c *corev1.Container) []corev1.ResourceStatus { return w.m.Devices.Health(p, c) }
	}
	st := derive(p, f, seen)
	if w.m.Shorten != nil {
		w.m.Shorten(p, st)
	}
	if apiequality.Semantic.DeepEqual(&p.Status, st) {
		return nil
	}
	next, err := w.m.Statuses.Write(ctx, p, st)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Debug("the status of a Pod was not written; it is tried again", "err", err)
		}
		return err
	}
	w.newer = next
	return nil
}

// latest is the newer one of the Pod as its source has it and as the last write left it: a view may be a moment behind.
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

// back says that a container waits for its next run, once for each wait.
func (w *worker) back(p *corev1.Pod, f *fact.Pod, name string, now time.Time) {
	run, found := f.Of(name)
	if !found {
		return
	}
	_, whole := w.backoffs.left(name, run.Finished, now)
	w.waiting[name] = fact.Waiting{Reason: "CrashLoopBackOff", Message: "back-off " + whole.String() + " restarting failed container=" + name + " pod=" + full(p)}
	if w.told[name] != run.Finished {
		w.told[name] = run.Finished
		w.m.Events.Event(p, name, corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s in pod %s", name, full(p))
	}
}

// full names a Pod without doubt.
func full(p *corev1.Pod) string { return p.Name + "_" + p.Namespace + "(" + string(p.UID) + ")" }

// sweep removes what is of no use any more: runs before the last but one, and sandboxes that have ended. A run that ended
// stays for its logs, and the one before it for those of --previous.
func (w *worker) sweep(ctx context.Context, f *fact.Pod) {
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
		holds := slices.ContainsFunc(f.Containers, func(c fact.Container) bool { return c.SandboxID == s.ID && !slices.Contains(old, c.ID) })
		if i > 0 && !s.Ready && !holds {
			boxes = append(boxes, s.ID)
		}
	}
	if len(old)+len(boxes) > 0 {
		w.remove(ctx, f, old, boxes)
	}
}
