package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/period"
	"proa.dev/node/cri"
	"proa.dev/node/fact"
)

// leastGrace is given to every container, so that one that ends at once is not killed.
const leastGrace = 2 * time.Second

// grace is how long a container of the Pod has to end; override replaces the Pod's own.
func grace(p *corev1.Pod, override *int64) time.Duration {
	switch {
	case p.DeletionGracePeriodSeconds != nil:
		return period.Seconds(*p.DeletionGracePeriodSeconds)
	case override != nil:
		return period.Seconds(*override)
	case p.Spec.TerminationGracePeriodSeconds != nil:
		return period.Seconds(*p.Spec.TerminationGracePeriodSeconds)
	}
	return leastGrace
}

// kill ends a container that the plan wants ended.
func (w *worker) kill(ctx context.Context, p *corev1.Pod, f *fact.Pod, k Kill) {
	c, _ := find(p, k.Name)
	w.do(ctx, k.Name, func(ctx context.Context) func(bool) {
		err := w.stop(ctx, p, c, k.ID, k.Message, grace(p, k.Grace), f.IPs())
		return func(broken bool) {
			if err != nil && !broken {
				w.log.Warn("a container could not be ended; it is tried again", "container", k.Name, "err", err)
				w.hold[k.Name] = time.Now().Add(time.Second)
			}
		}
	})
}

// stop ends one container: its preStop hook first, then its signal, and the hard end when its time is over.
func (w *worker) stop(ctx context.Context, p *corev1.Pod, c *corev1.Container, id, message string, within time.Duration, ips addresses) error {
	return w.stopAfter(ctx, p, c, id, message, within, ips, order{})
}

// order is when a container may be stopped beside the others of its Pod.
type order struct {
	after []<-chan struct{} // the ends of the containers that it waits for, as long as its time allows
	slots StopSlots
}

// StopSlots let a few containers of a Pod be told to end at a time: a shim that is told to end many at once stalls, for minutes at
// worst. A nil one lets everything pass.
type StopSlots chan struct{}

// NewStopSlots makes the slots of one Pod.
func NewStopSlots() StopSlots { return make(StopSlots, parallelStops) }

const (
	// parallelStops is how many containers of a Pod are told to end at a time.
	parallelStops = 2
	// slotTime is how long a container that does not end at once keeps others waiting.
	slotTime = 500 * time.Millisecond
)

// Take waits for a slot, and gives it back when done is called or slotTime is over.
func (s StopSlots) Take(ctx context.Context) (done func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	select {
	case s <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	free := sync.OnceFunc(func() { <-s })
	clock := time.AfterFunc(slotTime, free)
	return func() { clock.Stop(); free() }, nil
}

// stopAfter is stop for a container that waits for others to end, as long as its time allows.
func (w *worker) stopAfter(ctx context.Context, p *corev1.Pod, c *corev1.Container, id, message string, within time.Duration, ips addresses, o order) error {
	if message == "" {
		message = "Stopping container " + c.Name
	}
	w.m.Events.Event(p, c.Name, corev1.EventTypeNormal, "Killing", "%s", message)
	until := time.Now().Add(within)
	if h := c.Lifecycle; h != nil && h.PreStop != nil && within > 0 {
		w.preStop(ctx, p, c, id, ips, within)
	}
	clock := time.NewTimer(time.Until(until))
	defer clock.Stop()
	turn := o.after
	for _, other := range turn {
		select {
		case <-other:
		case <-clock.C:
			turn = nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if turn == nil {
			break
		}
	}
	queued := time.Now()
	done, err := o.slots.Take(ctx)
	if err != nil {
		return err
	}
	defer done()
	until = until.Add(time.Since(queued)) // its time begins when it is told
	left := max(time.Until(until), leastGrace).Round(time.Second)
	_, err = w.m.Client.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: id, Timeout: int64(left / time.Second)})
	if cri.NotFound(err) {
		return nil
	}
	return err
}

func (w *worker) preStop(ctx context.Context, p *corev1.Pod, c *corev1.Container, id string, ips addresses, within time.Duration) {
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	if err := w.m.Hooks.Run(ctx, p, c, id, ips, c.Lifecycle.PreStop); err != nil {
		w.log.Info("a preStop hook failed", "container", c.Name, "err", err)
		w.m.Events.Event(p, c.Name, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
}

// stopAll ends every container of the Pod and then its sandboxes.
func (w *worker) stopAll(ctx context.Context, p *corev1.Pod, f *fact.Pod, within time.Duration) error {
	if err := w.stopRunning(ctx, p, f, within); err != nil {
		return err
	}
	for i := range f.Sandboxes {
		if s := &f.Sandboxes[i]; s.Ready || i == 0 {
			if _, err := w.m.Client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: s.ID}); err != nil && !cri.NotFound(err) {
				return fmt.Errorf("stop the sandbox: %w", err)
			}
		}
	}
	return nil
}

// stopRunning ends every container of the Pod that runs. Sidecars end after the containers they stand beside, the last first. within is
// the time that all of them have together.
func (w *worker) stopRunning(ctx context.Context, p *corev1.Pod, f *fact.Pod, within time.Duration) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	ended, slots := map[string]chan struct{}{}, NewStopSlots()
	var running []*fact.Container
	for i := range f.Containers {
		if r := &f.Containers[i]; r.State == fact.Running || r.State == fact.Unknown {
			running = append(running, r)
			if ended[r.Name] == nil {
				ended[r.Name] = make(chan struct{})
			}
		}
	}
	for _, r := range running {
		c, _ := find(p, r.Name)
		if c == nil {
			c = &corev1.Container{Name: r.Name}
		}
		o := order{before(p, r.Name, ended), slots}
		wg.Go(func() {
			err := w.stopAfter(ctx, p, c, r.ID, "", within, f.IPs(), o)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("stop the container %s: %w", r.Name, err))
			}
			select {
			case <-ended[r.Name]:
			default:
				close(ended[r.Name])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// before are the ends that a container waits for: a sidecar for those of all regular containers and of the sidecars after it.
func before(p *corev1.Pod, name string, ended map[string]chan struct{}) (out []<-chan struct{}) {
	at := slices.IndexFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name && sidecar(&c) })
	if at < 0 {
		return nil
	}
	for i := range p.Spec.Containers {
		if end := ended[p.Spec.Containers[i].Name]; end != nil {
			out = append(out, end)
		}
	}
	for i := at + 1; i < len(p.Spec.InitContainers); i++ {
		if end := ended[p.Spec.InitContainers[i].Name]; end != nil {
			out = append(out, end)
		}
	}
	return out
}

// reset removes all runs of the Pod's containers, so that they begin anew in the same sandbox.
func (w *worker) reset(ctx context.Context, ids []string) {
	w.do(ctx, workEnd, func(ctx context.Context) func(bool) {
		for _, id := range ids {
			if _, err := w.m.Client.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: id}); err != nil && !cri.NotFound(err) {
				return func(bool) { w.retry(workEnd) }
			}
			if _, err := w.m.Client.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id}); err != nil && !cri.NotFound(err) {
				return func(bool) { w.retry(workEnd) }
			}
		}
		return func(bool) { w.images = map[string]*image{} }
	})
}

// remove takes runs and sandboxes away that have ended.
func (w *worker) remove(ctx context.Context, f *fact.Pod, runs, boxes []string) {
	w.do(ctx, workRelease, func(ctx context.Context) func(bool) {
		err := w.removeNow(ctx, f, runs, boxes)
		return func(broken bool) {
			if err != nil && !broken {
				w.log.Debug("what is left of a Pod could not be removed; it is tried again", "err", err)
			}
		}
	})
}

func (w *worker) removeNow(ctx context.Context, f *fact.Pod, runs, boxes []string) error {
	var errs []error
	for _, id := range runs {
		_, err := w.m.Client.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id})
		if err != nil && !cri.NotFound(err) {
			errs = append(errs, err)
			continue
		}
		for i := range f.Containers {
			if c := &f.Containers[i]; c.ID == id {
				w.m.forget(c.LogPath)
			}
		}
	}
	for _, id := range boxes {
		if _, err := w.m.Client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id}); err != nil && !cri.NotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
