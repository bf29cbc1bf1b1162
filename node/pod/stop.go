package pod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/lib/duration"
	"proa.dev/node/cri"
	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/podstate"
	"proa.dev/node/podtrace"
)

// minGrace is the minimum grace period, so that a container that stops at once is not killed.
const minGrace = 2 * time.Second

// grace returns the grace period of the Pod's containers; override replaces the one of its spec.
func grace(p *corev1.Pod, override *int64) time.Duration {
	switch {
	case p.DeletionGracePeriodSeconds != nil:
		return duration.FromSeconds(*p.DeletionGracePeriodSeconds)
	case override != nil:
		return duration.FromSeconds(*override)
	case p.Spec.TerminationGracePeriodSeconds != nil:
		return duration.FromSeconds(*p.Spec.TerminationGracePeriodSeconds)
	}
	return minGrace
}

// kill stops a container that the plan wants stopped.
func (w *worker) kill(ctx context.Context, p *corev1.Pod, f *fact.Pod, k podstate.Kill) {
	c, _ := podstate.FindContainer(p, k.Name)
	w.do(ctx, k.Name, func(ctx context.Context) func(bool) {
		err := w.stop(ctx, p, stopping{container: c, id: k.ID, message: k.Message, grace: grace(p, k.Grace), ips: f.IPs()})
		return func(broken bool) {
			if err != nil && !broken {
				w.log.Warn("a container could not be ended; retrying", "container", k.Name, "err", err)
				w.startNotBefore[k.Name] = time.Now().Add(time.Second)
			}
		}
	})
}

// stopping describes how one container is stopped.
type stopping struct {
	container *corev1.Container
	id        string
	message   string        // of the Killing Event; empty for the default
	grace     time.Duration // the grace period
	ips       []netip.Addr  // of the Pod, for its preStop hook
	// after has a channel for each container that must end first; each is closed at its end. They are awaited during the grace
	// period at most.
	after []<-chan struct{}
	slots cri.StopSlots
	// traced records the steps of the stop; nil for a stop that is not recorded.
	traced *podtrace.Work
	signal string // the stop signal, such as SIGTERM
}

// stop stops one container: its preStop hook runs first, then it gets its stop signal, and is killed when the grace period
// is over.
func (w *worker) stop(ctx context.Context, p *corev1.Pod, s stopping) error {
	if s.message == "" {
		s.message = "Stopping container " + s.container.Name
	}
	w.m.Events.Event(event.Container(p, s.container.Name), corev1.EventTypeNormal, "Killing", "%s", s.message)
	until := time.Now().Add(s.grace)
	if h := s.container.Lifecycle; h != nil && h.PreStop != nil && s.grace > 0 {
		w.preStop(ctx, p, s)
	}
	if err := waitForEnds(ctx, s.after, time.Until(until)); err != nil {
		return err
	}
	left := max(time.Until(until), minGrace)
	traced := s.traced.BeginWaiting("stop " + s.container.Name)
	isGraceOver, err := w.m.Client.Stop(ctx, s.id, left, s.slots)
	switch {
	case err == nil && traced != nil:
		traced.End(w.endOf(ctx, s, isGraceOver), nil)
	case ctx.Err() != nil:
		traced.End("given up, because the grace period was shortened or the agent ends", nil)
	default:
		traced.End("", err)
	}
	return err
}

// endOf says how a container that was stopped has ended.
func (w *worker) endOf(ctx context.Context, s stopping, isGraceOver bool) string {
	answer, err := w.m.Client.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: s.id})
	if err != nil {
		return ""
	}
	return describeEnd(s, answer.GetStatus().GetExitCode(), isGraceOver)
}

// exitKilled is the exit code of a process that was killed with SIGKILL.
const exitKilled = 128 + 9

// describeEnd says whether a container ended after its stop signal, or was killed because it had not ended within its grace period.
func describeEnd(s stopping, exitCode int32, isGraceOver bool) string {
	if isGraceOver && exitCode == exitKilled {
		return fmt.Sprintf("killed after the grace period of %d s", max(s.grace, minGrace).Round(time.Second)/time.Second)
	}
	return fmt.Sprintf("ended after %s, with exit code %d", cmp.Or(s.signal, "SIGTERM"), exitCode)
}

// waitForEnds waits until all channels are closed, or for the given time. It fails only if ctx ends.
func waitForEnds(ctx context.Context, ends []<-chan struct{}, atMost time.Duration) error {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for _, end := range ends {
		select {
		case <-end:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (w *worker) preStop(ctx context.Context, p *corev1.Pod, s stopping) {
	ctx, cancel := context.WithTimeout(ctx, s.grace)
	defer cancel()
	c := s.container
	traced := s.traced.BeginPart("preStop " + c.Name)
	err := w.m.Hooks.Run(ctx, p, c, s.id, s.ips, c.Lifecycle.PreStop)
	traced.End("", err)
	if err != nil {
		w.log.Info("a preStop hook failed", "container", c.Name, "err", err)
		w.m.Events.Event(event.Container(p, c.Name), corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
}

// stopAll stops all containers of the Pod and then its sandboxes. Its steps are recorded in traced, which may be nil.
func (w *worker) stopAll(ctx context.Context, p *corev1.Pod, f *fact.Pod, within time.Duration, traced *podtrace.Work) (err error) {
	if err := w.stopRunning(ctx, p, f, within, traced); err != nil {
		return err
	}
	if len(f.Sandboxes) > 0 {
		step := traced.BeginPart("sandbox")
		defer func() { step.End("", err) }()
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

// stopRunning stops all running containers of the Pod. Sidecars are stopped after the regular containers, in reverse
// order. within is the grace period of all of them together; in Pods of many containers it begins later for some.
func (w *worker) stopRunning(ctx context.Context, p *corev1.Pod, f *fact.Pod, within time.Duration, traced *podtrace.Work) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	ended := map[string]chan struct{}{}
	var running []*fact.Container
	for i := range f.Containers {
		if r := &f.Containers[i]; r.State == fact.Running || r.State == fact.Unknown {
			running = append(running, r)
			if ended[r.Name] == nil {
				ended[r.Name] = make(chan struct{})
			}
		}
	}
	shared := p.Spec.HostPID || p.Spec.ShareProcessNamespace != nil && *p.Spec.ShareProcessNamespace
	slots := cri.NewStopSlots(len(running), shared)
	for _, r := range running {
		c, _ := podstate.FindContainer(p, r.Name)
		if c == nil {
			c = &corev1.Container{Name: r.Name}
		}
		s := stopping{container: c, id: r.ID, grace: within, ips: f.IPs(), after: endsToAwait(p, r.Name, ended), slots: slots,
			traced: traced, signal: r.StopSignal}
		wg.Go(func() {
			err := w.stop(ctx, p, s)
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

// endsToAwait returns the ends that a container waits for: a sidecar waits for all regular containers and for the sidecars
// after it.
func endsToAwait(p *corev1.Pod, name string, ended map[string]chan struct{}) (out []<-chan struct{}) {
	at := slices.IndexFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name && podstate.IsSidecar(&c) })
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

// reset removes all runs of the Pod's containers, so that they start from the beginning in the same sandbox.
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

// remove removes runs and sandboxes that have ended.
func (w *worker) remove(ctx context.Context, f *fact.Pod, runs, boxes []string) {
	w.do(ctx, workRelease, func(ctx context.Context) func(bool) {
		err := w.removeNow(ctx, f, runs, boxes)
		return func(broken bool) {
			if err != nil && !broken {
				w.log.Debug("what is left of a Pod could not be removed; retrying", "err", err)
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
				w.m.removeLogs(c.LogPath)
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
