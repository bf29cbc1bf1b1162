package pod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/hop"
	"proa.dev/node/agentmetrics"
	"proa.dev/node/cri"
	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/podstate"
	"proa.dev/node/podtrace"
)

// image is the image for the next run of a container.
type image struct{ *cri.Image }

// mount mounts the volumes of the Pod.
func (w *worker) mount(ctx context.Context, p *corev1.Pod) {
	if _, busy := w.busy[workVolumes]; busy {
		return
	}
	var traced *podtrace.Work
	if !w.volumes { // later mounts only refresh what the volumes show
		traced = w.trace(workVolumes, p, hop.Volumes)
	}
	w.doNoted(ctx, workVolumes, func(ctx context.Context) func(bool) {
		err := w.m.Volumes.Mount(ctx, p)
		traced.EndTry(ctx, err)
		return func(broken bool) {
			if err == nil {
				w.volumes, w.mountedFor = true, p
				return
			}
			if broken {
				return
			}
			w.log.Debug("the volumes of a Pod are not ready; retrying", "err", err) // an Event has told the user
			w.retry(workVolumes)
		}
	})
}

// retry delays the next attempt for the whole Pod, with exponential back-off.
func (w *worker) retry(what string) {
	w.fails[what]++
	w.retryAt = time.Now().Add(w.backoff(what))
}

// backoff returns the pause after the failures of a piece of work so far: it doubles with each, up to ten seconds.
func (w *worker) backoff(what string) time.Duration {
	return min(w.m.Retry<<min(w.fails[what]-1, 10), 10*time.Second)
}

// createSandbox creates a new sandbox. What is left of an old one is stopped first, with the containers in it.
func (w *worker) createSandbox(ctx context.Context, p *corev1.Pod, f *fact.Pod, attempt uint32, changed bool) {
	if _, busy := w.busy[workSandbox]; busy {
		return
	}
	if changed {
		w.m.Events.Event(event.Pod(p), corev1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	traced := w.trace(workSandbox, p, hop.Sandbox)
	w.doNoted(ctx, workSandbox, func(ctx context.Context) func(bool) {
		err := w.stopAll(ctx, p, f, grace(p, nil), nil)
		if err == nil {
			err = w.runSandbox(ctx, p, attempt, traced)
		}
		traced.EndTry(ctx, err)
		return func(broken bool) {
			if err == nil {
				delete(w.fails, workSandbox)
				return
			}
			if broken {
				return
			}
			why, ok := errors.AsType[*sandboxError](err)
			if !ok {
				why = newSandboxError("FailedCreatePodSandBox", "Failed to create pod sandbox: ", err)
			}
			w.m.Events.Event(event.Pod(p), corev1.EventTypeWarning, why.reason, "%s", why.Error())
			w.retry(workSandbox)
			if why.reason == noNetwork {
				w.fails[workSandbox] = 0 // the network may be ready soon, and no event says so
				w.retryAt = time.Now().Add(time.Second)
			}
		}
	})
}

// noNetwork is the reason of the Event that says that Pods cannot get a network now.
const noNetwork = "NetworkNotReady"

// sandboxError says why a sandbox cannot be created yet; its reason and text are those of the Event.
type sandboxError struct {
	reason, text string
	error
}

func newSandboxError(reason, text string, err error) *sandboxError {
	return &sandboxError{reason, text, err}
}

func (e *sandboxError) Error() string { return e.text + e.error.Error() }

// prepare checks the network and prepares the resource claims that the sandbox and its containers need.
func (w *worker) prepare(ctx context.Context, p *corev1.Pod) error {
	if w.m.Network != nil && !p.Spec.HostNetwork {
		if err := w.m.Network(ctx); err != nil {
			return newSandboxError(noNetwork, "network is not ready: ", err)
		}
	}
	w.m.Metrics.StartPod()
	if w.m.Devices != nil {
		if err := w.m.Devices.Prepare(ctx, p); err != nil {
			return newSandboxError("FailedPrepareDynamicResources", "Failed to prepare dynamic resources: ", err)
		}
	}
	return nil
}

func (w *worker) runSandbox(ctx context.Context, p *corev1.Pod, attempt uint32, traced *podtrace.Work) (err error) {
	traced.Enter("prepare", "")
	if err := w.prepare(ctx, p); err != nil {
		return err
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			w.m.Metrics.StartPodFailed()
		}
	}()
	parent, err := w.m.Cgroups.Ensure(p)
	if err != nil {
		return fmt.Errorf("unable to ensure pod container exists: %w", err)
	}
	config, handler, err := w.m.Maker.Sandbox(ctx, p, attempt)
	if err != nil {
		return err
	}
	if config.Linux == nil {
		config.Linux = &cri.LinuxPodSandboxConfig{}
	}
	config.Linux.CgroupParent = parent
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil { //nolint:gosec // G301: collectors of logs are other users
		return fmt.Errorf("make the folder for logs: %w", err)
	}
	traced.Enter("run", "")
	_, err = w.m.Client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	return err
}

// trace begins the record of a piece of work, or continues it if an earlier try has failed.
func (w *worker) trace(name string, p *corev1.Pod, verb string) *podtrace.Work {
	return w.traced.Begin(name, func() *podtrace.Work { return w.m.Trace.Begin(p, verb) })
}

// pull makes the image of a container's next run present.
func (w *worker) pull(ctx context.Context, p *corev1.Pod, name string) {
	if _, busy := w.busy[name]; busy {
		return
	}
	c, _ := podstate.FindContainer(p, name)
	traced := w.trace("pull "+name, p, hop.Pull)
	w.do(ctx, name, func(ctx context.Context) func(bool) {
		traced.Enter("image of "+name, c.Image)
		got, err := w.m.Images.Ensure(ctx, p, c, traced)
		if isPullBackOff(err) {
			traced.Postpone(err)
		} else {
			traced.EndTry(ctx, err)
		}
		return func(broken bool) {
			if err != nil {
				if !broken {
					w.m.Metrics.StartContainer(agentmetrics.TypeOf(p, name))
				}
				w.startFailed(p, name, err, broken)
				w.pullFailed[name] = true
				return
			}
			if w.pullFailed[name] { // the image is present now, whatever else is missing
				delete(w.pullFailed, name)
				delete(w.waiting, name)
			}
			w.images[name] = &image{got}
		}
	})
}

// isPullBackOff reports whether an image was not pulled because the last attempt is too short ago.
func isPullBackOff(err error) bool {
	why, ok := errors.AsType[*fact.Waiting](err)
	return ok && why.Reason == "ImagePullBackOff"
}

// start starts a container.
func (w *worker) start(ctx context.Context, p *corev1.Pod, f *fact.Pod, name string, now time.Time) {
	img := w.images[name]
	if _, busy := w.busy[name]; busy || img == nil {
		return
	}
	if run, found := f.Of(name); found && run.State == fact.Exited {
		w.backoffs.advance(name, run.Finished, now)
	}
	delete(w.pullFailed, name)
	delete(w.images, name) // the next run checks the image again: its pull policy may be Always
	traced := w.trace("container "+name, p, hop.Container)
	w.doNoted(ctx, name, func(ctx context.Context) func(bool) {
		w.m.Metrics.StartContainer(agentmetrics.TypeOf(p, name))
		err := w.createAndStart(ctx, p, f, newContainer{name: name, image: img.Image, traced: traced})
		traced.EndTry(ctx, err)
		return func(broken bool) {
			if err != nil {
				w.startFailed(p, name, err, broken)
				return
			}
			if c, _ := podstate.FindContainer(p, name); w.given != nil {
				w.given[name] = *c.Resources.DeepCopy()
			}
			delete(w.waiting, name)
			delete(w.fails, name)
			delete(w.startNotBefore, name)
		}
	})
}

// startFailed records why a container could not be started, and when to retry.
func (w *worker) startFailed(p *corev1.Pod, name string, err error, broken bool) {
	if broken {
		return
	}
	why, ok := errors.AsType[*fact.Waiting](err)
	if !ok {
		why = &fact.Waiting{Reason: "CreateContainerError", Message: err.Error()}
	}
	w.m.Metrics.StartContainerFailed(agentmetrics.TypeOf(p, name), why.Reason)
	if before, waited := w.waiting[name]; (!waited || before.Reason != why.Reason) && why.Reason != "CrashLoopBackOff" {
		w.m.Events.Event(event.Container(p, name), corev1.EventTypeWarning, "Failed", "Error: %v", eventMessage(why))
	}
	w.waiting[name] = *why
	w.fails[name]++
	pause := why.After
	if pause <= 0 {
		pause = w.backoff(name)
	}
	w.startNotBefore[name] = time.Now().Add(pause)
}

// eventMessage returns the message of the Event about a failed start.
func eventMessage(why *fact.Waiting) string {
	if why.Reason == "ErrImagePull" || why.Reason == "ImagePullBackOff" || why.Message == "" {
		return why.Reason
	}
	return why.Message
}

// createTimeout is the timeout of the runtime's calls that create and start a container.
const createTimeout = 2 * time.Minute

// newContainer is a container that is about to be created.
type newContainer struct {
	name   string
	image  *cri.Image
	traced *podtrace.Work
}

// createAndStart creates and starts one run of a container, and runs its postStart hook.
func (w *worker) createAndStart(ctx context.Context, p *corev1.Pod, f *fact.Pod, run newContainer) error {
	name := run.name
	run.traced.Enter("create "+name, "")
	c, target := podstate.FindContainer(p, name)
	box := f.Sandboxes[0]
	config, err := w.containerConfig(ctx, p, f, c, target, run.image)
	if err != nil {
		if _, ok := errors.AsType[*fact.Waiting](err); !ok {
			err = &fact.Waiting{Reason: "CreateContainerConfigError", Message: cri.Message(err)}
		}
		return err
	}
	around, _, err := w.m.Maker.Sandbox(ctx, p, box.Attempt)
	if err != nil {
		return &fact.Waiting{Reason: "CreateContainerConfigError", Message: err.Error()}
	}
	if err := os.MkdirAll(filepath.Join(around.LogDirectory, name), //nolint:gosec // G301: collectors of logs are other users
		0o755); err != nil {
		return &fact.Waiting{Reason: "CreateContainerError", Message: err.Error()}
	}
	// A call that is cancelled leaves a container that the runtime reports as failed, although only its Pod is
	// terminating. So the calls are not cancelled; ctx is checked between them instead.
	calls, done := context.WithTimeout(context.WithoutCancel(ctx), createTimeout)
	defer done()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	made, err := w.m.Client.CreateContainer(calls, &cri.CreateContainerRequest{PodSandboxId: box.ID, Config: config, SandboxConfig: around})
	if err != nil {
		return &fact.Waiting{Reason: "CreateContainerError", Message: cri.Message(err)}
	}
	w.m.Events.Event(event.Container(p, name), corev1.EventTypeNormal, "Created", "Container created")
	if ctx.Err() != nil {
		return ctx.Err()
	}
	run.traced.Enter("start "+name, "")
	if _, err := w.m.Client.StartContainer(calls, &cri.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
		return &fact.Waiting{Reason: "RunContainerError", Message: cri.Message(err)}
	}
	w.m.Events.Event(event.Container(p, name), corev1.EventTypeNormal, "Started", "Container started")
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	w.wake.Send() // it runs, whatever its hook does
	run.traced.Enter("postStart "+name, "")
	if err := w.m.Hooks.Run(ctx, p, c, made.ContainerId, box.IPs, c.Lifecycle.PostStart); err != nil {
		if ctx.Err() != nil {
			return ctx.Err() // the Pod terminates, which stops the container
		}
		w.m.Events.Event(event.Container(p, name), corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
		_ = w.stop(ctx, p, stopping{container: c, id: made.ContainerId, message: "FailedPostStartHook", grace: grace(p, nil), ips: box.IPs})
		return &fact.Waiting{Reason: "PostStartHookError", Message: err.Error()}
	}
	return nil
}

// containerConfig makes the runtime's configuration of a container.
func (w *worker) containerConfig(ctx context.Context, p *corev1.Pod, f *fact.Pod, c *corev1.Container, target string,
	img *cri.Image) (*cri.ContainerConfig, error) {
	r := Run{Image: img, IPs: f.IPs()}
	if p.Spec.HostNetwork {
		r.IPs = w.m.HostIPs()
	}
	if run, found := f.Of(c.Name); found {
		r.Attempt = run.Attempt + 1
	} else if names, err := filepath.Glob(filepath.Join(w.m.LogDir(p), c.Name, "*.log*")); err == nil {
		for i := range names {
			names[i] = filepath.Base(names[i])
		}
		r.Attempt = attemptAfter(names)
	}
	if target != "" {
		run, found := podstate.CurrentRun(f, target)
		if !found || run.State != fact.Running {
			return nil, fmt.Errorf("unable to find target container %s", target)
		}
		r.Target = run.ID
	}
	var err error
	if r.Env, err = w.m.Maker.Env(ctx, p, c, r.IPs); err != nil {
		return nil, err
	}
	r.Binds, r.Devices, err = w.m.Volumes.Binds(ctx, p, c, w.m.PathExpander(r.Env))
	if err != nil {
		return nil, err
	}
	if w.m.Devices != nil {
		if err := w.m.Devices.Grant(ctx, p, c, &r); err != nil {
			return nil, err
		}
	}
	return w.m.Maker.Container(ctx, p, c, r)
}
