package pod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/cri"
	"proa.dev/node/fact"
)

// image is an image that is here for the next run of a container.
type image struct{ *cri.Image }

// mount makes the volumes of the Pod ready.
func (w *worker) mount(ctx context.Context, p *corev1.Pod) {
	w.do(ctx, workVolumes, func(ctx context.Context) func(bool) {
		begin := time.Now()
		err := w.m.Volumes.Mount(ctx, p)
		w.spent(p, "volumes", begin)
		return func(broken bool) {
			if err == nil {
				w.volumes, w.shown = true, p
				return
			}
			if broken {
				return
			}
			w.log.Debug("the volumes of a Pod are not ready; it is tried again", "err", err) // who mounts has told it
			w.retry(workVolumes)
		}
	})
}

// retry puts the next try for the whole Pod off, longer each time.
func (w *worker) retry(what string) {
	w.fails[what]++
	pause := min(w.m.Retry<<min(w.fails[what]-1, 10), 10*time.Second)
	w.retryAt = time.Now().Add(pause)
}

// sandbox makes a new sandbox. What is left of an old one goes first, with the containers in it.
func (w *worker) sandbox(ctx context.Context, p *corev1.Pod, f *fact.Pod, attempt uint32, changed bool) {
	if _, busy := w.busy[workSandbox]; busy {
		return
	}
	if changed {
		w.m.Events.Event(p, "", corev1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	w.do(ctx, workSandbox, func(ctx context.Context) func(bool) {
		err := w.stopAll(ctx, p, f, grace(p, nil))
		if err == nil {
			err = w.makeSandbox(ctx, p, attempt)
		}
		return func(broken bool) {
			if err == nil {
				delete(w.fails, workSandbox)
				return
			}
			if broken {
				return
			}
			why, ok := errors.AsType[*early](err)
			if !ok {
				why = tooEarly("FailedCreatePodSandBox", "Failed to create pod sandbox: ", err)
			}
			w.m.Events.Event(p, "", corev1.EventTypeWarning, why.reason, "%s", why.Error())
			w.retry(workSandbox)
			if why.reason == noNetwork {
				w.fails[workSandbox] = 0 // it may be there soon, and then nobody says so
				w.retryAt = time.Now().Add(time.Second)
			}
		}
	})
}

// noNetwork is the reason of the Event that says that no Pod can have a network now.
const noNetwork = "NetworkNotReady"

// early is why a sandbox cannot be made yet, as an Event says it.
type early struct {
	reason, text string
	error
}

func tooEarly(reason, text string, err error) *early { return &early{reason, text, err} }

func (e *early) Error() string { return e.text + e.error.Error() }

// prepared makes sure that there is what a sandbox and its containers need of others.
func (w *worker) prepared(ctx context.Context, p *corev1.Pod) error {
	if w.m.Network != nil && !p.Spec.HostNetwork {
		if err := w.m.Network(ctx); err != nil {
			return tooEarly(noNetwork, "network is not ready: ", err)
		}
	}
	if w.m.Devices != nil {
		if err := w.m.Devices.Prepare(ctx, p); err != nil {
			return tooEarly("FailedPrepareDynamicResources", "Failed to prepare dynamic resources: ", err)
		}
	}
	return nil
}

func (w *worker) makeSandbox(ctx context.Context, p *corev1.Pod, attempt uint32) error {
	if err := w.prepared(ctx, p); err != nil {
		return err
	}
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
	begin := time.Now()
	_, err = w.m.Client.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	w.spent(p, "sandbox", begin)
	return err
}

// spent tells how long a step took.
func (w *worker) spent(p *corev1.Pod, step string, begin time.Time) {
	if w.m.Spent != nil {
		w.m.Spent(p, step, begin)
	}
}

// pull brings the image of a container's next run.
func (w *worker) pull(ctx context.Context, p *corev1.Pod, name string) {
	c, _ := find(p, name)
	w.do(ctx, name, func(ctx context.Context) func(bool) {
		begin := time.Now()
		got, err := w.m.Images.Ensure(ctx, p, c)
		w.spent(p, "image", begin)
		return func(broken bool) {
			if err != nil {
				w.failed(p, name, err, broken)
				w.unpulled[name] = true
				return
			}
			if w.unpulled[name] { // the image is here now, whatever else is not
				delete(w.unpulled, name)
				delete(w.waiting, name)
			}
			w.images[name] = &image{got}
		}
	})
}

// start runs a container.
func (w *worker) start(ctx context.Context, p *corev1.Pod, f *fact.Pod, name string, now time.Time) {
	img := w.images[name]
	if _, busy := w.busy[name]; busy || img == nil {
		return
	}
	if run, found := f.Of(name); found && run.State == fact.Exited {
		w.backoffs.next(name, run.Finished, now)
	}
	delete(w.unpulled, name)
	delete(w.images, name) // the next run asks anew: its policy may be to pull always
	w.do(ctx, name, func(ctx context.Context) func(bool) {
		begin := time.Now()
		err := w.run1(ctx, p, f, name, img.Image)
		w.spent(p, "container", begin)
		return func(broken bool) {
			if err != nil {
				w.failed(p, name, err, broken)
				return
			}
			if c, _ := find(p, name); w.given != nil {
				w.given[name] = *c.Resources.DeepCopy()
			}
			delete(w.waiting, name)
			delete(w.fails, name)
			delete(w.hold, name)
		}
	})
}

// failed remembers why a container could not be started, and when to try again.
func (w *worker) failed(p *corev1.Pod, name string, err error, broken bool) {
	if broken {
		return
	}
	why, ok := errors.AsType[*fact.Waiting](err)
	if !ok {
		why = &fact.Waiting{Reason: "CreateContainerError", Message: err.Error()}
	}
	if before, same := w.waiting[name]; (!same || before.Reason != why.Reason) && why.Reason != "CrashLoopBackOff" {
		w.m.Events.Event(p, name, corev1.EventTypeWarning, "Failed", "Error: %v", short(why))
	}
	w.waiting[name] = *why
	w.fails[name]++
	pause := why.After
	if pause <= 0 {
		pause = min(w.m.Retry<<min(w.fails[name]-1, 10), 10*time.Second)
	}
	w.hold[name] = time.Now().Add(pause)
}

// short is what an Event says about a failed start.
func short(why *fact.Waiting) string {
	if why.Reason == "ErrImagePull" || why.Reason == "ImagePullBackOff" || why.Message == "" {
		return why.Reason
	}
	return why.Message
}

// callTime is how long the runtime may take to make and start a container.
const callTime = 2 * time.Minute

// run1 makes and starts one run of a container, and sees its postStart hook through.
func (w *worker) run1(ctx context.Context, p *corev1.Pod, f *fact.Pod, name string, img *cri.Image) error {
	c, target := find(p, name)
	box := f.Sandboxes[0]
	config, err := w.config(ctx, p, f, c, target, img)
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
	if err := os.MkdirAll(filepath.Join(around.LogDirectory, name), 0o755); err != nil { //nolint:gosec // G301: collectors of logs are other users
		return &fact.Waiting{Reason: "CreateContainerError", Message: err.Error()}
	}
	// A call that is broken off leaves a container that the runtime calls failed, though only its Pod has ended. So the Pod's end is
	// looked for between the calls, and they run to theirs.
	calls, done := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer done()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	made, err := w.m.Client.CreateContainer(calls, &cri.CreateContainerRequest{PodSandboxId: box.ID, Config: config, SandboxConfig: around})
	if err != nil {
		return &fact.Waiting{Reason: "CreateContainerError", Message: cri.Message(err)}
	}
	w.m.Events.Event(p, name, corev1.EventTypeNormal, "Created", "Container created")
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, err := w.m.Client.StartContainer(calls, &cri.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
		return &fact.Waiting{Reason: "RunContainerError", Message: cri.Message(err)}
	}
	w.m.Events.Event(p, name, corev1.EventTypeNormal, "Started", "Container started")
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	w.poke() // it runs, whatever its hook does
	if err := w.m.Hooks.Run(ctx, p, c, made.ContainerId, box.IPs, c.Lifecycle.PostStart); err != nil {
		if ctx.Err() != nil {
			return ctx.Err() // the Pod ends, and stops the container
		}
		w.m.Events.Event(p, name, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
		_ = w.stop(ctx, p, c, made.ContainerId, "FailedPostStartHook", grace(p, nil), box.IPs)
		return &fact.Waiting{Reason: "PostStartHookError", Message: err.Error()}
	}
	return nil
}

// config is what the runtime is told about a container.
func (w *worker) config(ctx context.Context, p *corev1.Pod, f *fact.Pod, c *corev1.Container, target string, img *cri.Image) (*cri.ContainerConfig, error) {
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
		run, found := current(f, target)
		if !found || run.State != fact.Running {
			return nil, fmt.Errorf("unable to find target container %s", target)
		}
		r.Target = run.ID
	}
	var err error
	if r.Env, err = w.m.Maker.Env(ctx, p, c, r.IPs); err != nil {
		return nil, err
	}
	r.Binds, r.Devices, err = w.m.Volumes.Binds(ctx, p, c, func(text string) (string, error) { return w.m.Expand(text, r.Env) })
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
