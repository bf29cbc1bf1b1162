package pod

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/fact"
)

// Known is what the agent knows of a Pod beside the runtime's facts. It may be lost at any time, and costs a little when it
// is: a look, a pull, a wait.
type Known struct {
	Volumes bool            // they are mounted
	Images  map[string]bool // by container: the image for its next run is here
	Busy    map[string]bool // containers that something is being done to
	// Health is what the probes of a run say.
	Health func(id string) Health
	// Hash is that of a container's spec.
	Hash func(c *corev1.Container) string
	// Backoff is how long a container that ended must still wait for its next run.
	Backoff func(name string, ended time.Time) time.Duration
	// Hold is how long a container must wait because its last start failed.
	Hold func(name string) time.Duration
}

// Plan is what to do for a Pod that shall run. What is in it can be done side by side.
type Plan struct {
	Volumes bool
	// Sandbox is the attempt with which a new sandbox shall be made; what is left of the old one goes first.
	Sandbox *uint32
	// Changed says that there was a sandbox before.
	Changed bool
	Pull    []string
	Start   []string
	Kill    []Kill
	// Done says that nothing shall run any more: the Pod has finished by itself.
	Done bool
	// Again is when to look again though nothing has happened; 0 for never.
	Again time.Duration
	// Backing are containers that wait for their next run.
	Backing []string
	// Reset are runs to be removed, so that everything begins anew.
	Reset []string
}

// Kill is a container to be ended.
type Kill struct {
	ID, Name string
	Message  string
	Grace    *int64 // nil for the Pod's
}

// sandboxProblem says why a new sandbox is needed; it is empty when the newest one is good.
func sandboxProblem(p *corev1.Pod, f *fact.Pod) string {
	if len(f.Sandboxes) == 0 {
		return "no pod sandbox exists"
	}
	ready := 0
	for i := range f.Sandboxes {
		if f.Sandboxes[i].Ready {
			ready++
		}
	}
	s := &f.Sandboxes[0]
	switch {
	case ready > 1:
		return "multiple pod sandboxes are ready and need to be reconciled"
	case !s.Ready:
		return "pod sandbox is not ready"
	case s.Network == p.Spec.HostNetwork:
		return "network namespace mode changed and sandbox needs to be recreated"
	case s.Network && len(s.IPs) == 0:
		return "pod sandbox has no IP address"
	}
	return ""
}

// decide plans for a Pod that shall run. It is pure.
func decide(p *corev1.Pod, f *fact.Pod, k Known) Plan {
	plan := Plan{Volumes: !k.Volumes}
	if restartAll(p, f) {
		return reset(p, f, plan)
	}
	if sandboxProblem(p, f) != "" {
		return fresh(p, f, k, plan)
	}
	for i := range p.Spec.EphemeralContainers {
		name := p.Spec.EphemeralContainers[i].Name
		if _, found := f.Of(name); !found {
			plan.start(name, k) // they run once
		}
	}
	if initialized(p, f, k, &plan) {
		regular(p, f, k, &plan)
	}
	return plan
}

// fresh plans a new sandbox, and everything in it from the beginning.
func fresh(p *corev1.Pod, f *fact.Pod, k Known, plan Plan) Plan {
	attempt := uint32(0)
	if len(f.Sandboxes) > 0 {
		attempt, plan.Changed = f.Sandboxes[0].Attempt+1, true
	}
	if p.Spec.RestartPolicy == corev1.RestartPolicyNever && attempt > 0 && len(f.Containers) > 0 && !anyRestarts(p) {
		return Plan{Done: true}
	}
	var names []string
	seen := false
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		run, found := f.Of(c.Name)
		seen = seen || found
		if found && run.State == fact.Exited && !restarts(p, c, exitOf(run)) {
			continue
		}
		names = append(names, c.Name)
	}
	if len(names) == 0 && seen {
		return Plan{Done: true}
	}
	plan.Sandbox = &attempt
	if len(p.Spec.InitContainers) > 0 {
		names = []string{p.Spec.InitContainers[0].Name}
	}
	for _, name := range names {
		if !k.Images[name] && !k.Busy[name] && k.Hold(name) <= 0 {
			plan.Pull = append(plan.Pull, name)
		}
	}
	return plan
}

// anyRestarts says that a container may run again though its Pod's policy says it may not.
func anyRestarts(p *corev1.Pod) bool {
	for c := range containers(p) {
		if c.RestartPolicy != nil && *c.RestartPolicy != corev1.ContainerRestartPolicyNever || len(c.RestartPolicyRules) > 0 {
			return true
		}
	}
	return false
}

// initialized plans the init containers, and says whether the others may run.
func initialized(p *corev1.Pod, f *fact.Pod, k Known, plan *Plan) bool {
	before := begun(p, f)
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		run, found := current(f, c.Name)
		if sidecar(c) {
			if !beside(c, run, found, k, plan) && (!before || paused(p, f)) {
				return false
			}
			continue
		}
		switch {
		case before: // its work was done, even if the runtime has forgotten it
		case !found || run.State == fact.Created || run.State == fact.Unknown:
			if found && run.State == fact.Unknown {
				plan.kill(c, run, k, "Init container is in \"unknown\" state, try killing it before restart", nil)
			}
			plan.start(c.Name, k)
			return false
		case run.State == fact.Running:
			return false
		case !run.Succeeded():
			if !restarts(p, c, exitOf(run)) {
				*plan = Plan{Done: true}
				return false
			}
			plan.again(c.Name, run, k)
			return false
		}
	}
	return true
}

// beside plans a sidecar, and says whether it has started.
func beside(c *corev1.Container, run *fact.Container, found bool, k Known, plan *Plan) bool {
	switch {
	case !found || run.State == fact.Created:
		plan.start(c.Name, k)
		return false
	case run.State == fact.Unknown:
		plan.kill(c, run, k, "Init container is in \"unknown\" state, try killing it before restart", nil)
		return false
	case run.State == fact.Exited:
		plan.again(c.Name, run, k)
		return false
	}
	h := k.Health(run.ID)
	switch {
	case h.Failed != nil:
		plan.kill(c, run, k, fmt.Sprintf("Init container %s failed %s probe", c.Name, h.Failed.Probe), h.Failed.Grace)
	case run.Hash != "" && run.Hash != k.Hash(c):
		plan.kill(c, run, k, fmt.Sprintf("Init container %s definition changed", c.Name), nil)
	}
	return h.Started
}

// regular plans the containers that are what the Pod is for.
func regular(p *corev1.Pod, f *fact.Pod, k Known, plan *Plan) {
	alive := 0
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		run, found := f.Of(c.Name)
		if !found || run.State != fact.Running {
			switch {
			case !wanted(p, c, f):
			case found && run.State == fact.Unknown:
				alive++
				plan.kill(c, run, k, "Container is in \"unknown\" state, try killing it before restart", nil)
			case found && run.State == fact.Exited:
				alive++
				plan.again(c.Name, run, k)
			default:
				alive++
				plan.start(c.Name, k)
			}
			continue
		}
		h := k.Health(run.ID)
		message, grace := "", (*int64)(nil)
		switch {
		case run.Hash != "" && run.Hash != k.Hash(c):
			alive++
			plan.kill(c, run, k, fmt.Sprintf("Container %s definition changed, will be restarted", c.Name), nil)
			continue
		case h.Failed != nil:
			message, grace = fmt.Sprintf("Container %s failed %s probe", c.Name, h.Failed.Probe), h.Failed.Grace
		default:
			alive++
			continue
		}
		if restartsAfterFailure(p, c) {
			alive++
			message += ", will be restarted"
		}
		plan.kill(c, run, k, message, grace)
		alive += busyOne(k, c.Name)
	}
	if alive == 0 && len(plan.Kill) == 0 {
		*plan = Plan{Done: true}
	}
}

// busyOne counts a container that is being ended: the Pod is not done before that is.
func busyOne(k Known, name string) int {
	if k.Busy[name] {
		return 1
	}
	return 0
}

// reset plans that every container goes and begins anew, those that caused it last.
func reset(p *corev1.Pod, f *fact.Pod, plan Plan) Plan {
	var last []string
	for i := range f.Containers {
		c := &f.Containers[i]
		if spec, _ := find(p, c.Name); spec == nil {
			continue
		}
		if c.State == fact.Exited {
			last = append(last, c.ID)
			continue
		}
		plan.Reset = append(plan.Reset, c.ID)
	}
	plan.Reset = append(plan.Reset, last...)
	return plan
}

// start plans the first run of a container, or one after a failed start.
func (plan *Plan) start(name string, k Known) {
	if k.Busy[name] {
		return
	}
	if wait := k.Hold(name); wait > 0 {
		plan.look(wait)
		return
	}
	switch {
	case !k.Images[name]:
		plan.Pull = append(plan.Pull, name)
	case k.Volumes:
		plan.Start = append(plan.Start, name)
	}
}

// again plans the next run of a container that ended.
func (plan *Plan) again(name string, run *fact.Container, k Known) {
	if wait := k.Backoff(name, run.Finished); wait > 0 && !k.Busy[name] {
		plan.Backing = append(plan.Backing, name)
		plan.look(wait)
		return
	}
	plan.start(name, k)
}

func (plan *Plan) kill(c *corev1.Container, run *fact.Container, k Known, message string, grace *int64) {
	if !k.Busy[c.Name] {
		plan.Kill = append(plan.Kill, Kill{ID: run.ID, Name: c.Name, Message: message, Grace: grace})
	}
}

// look asks for another look no later than after a while.
func (plan *Plan) look(after time.Duration) {
	if plan.Again == 0 || after < plan.Again {
		plan.Again = after
	}
}
