// Package podstate computes the next steps of a Pod (Plan) and its status (ComputeStatus) from facts about its containers and
// what else the agent knows. All of it is pure: no clock, no I/O and no goroutines, so that every case is a test without a
// container. The workers of package pod carry the plans out and write the statuses.
package podstate

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/fact"
)

// PlanInput is what the agent knows of a Pod in addition to the facts. It is kept in memory only; losing it costs no more
// than a look at the runtime, a pull or a wait.
type PlanInput struct {
	Volumes bool            // the volumes are mounted
	Images  map[string]bool // by container: the image of its next run is present
	Busy    map[string]bool // containers and Pod-level work under way
	// Health returns the probe results of a run.
	Health func(id string) Health
	// Hash returns the hash of a container's spec.
	Hash func(c *corev1.Container) string
	// Backoff returns how long a container that has ended must still wait before it is restarted.
	Backoff func(name string, ended time.Time) time.Duration
	// Hold returns how long a container must still wait because its last start failed.
	Hold func(name string) time.Duration
}

// Plan is what to do next for a Pod that shall run. Its steps are independent and are done concurrently.
type Plan struct {
	Volumes bool
	// Sandbox is the attempt number of the sandbox that shall be created; what is left of the old sandbox is stopped
	// first.
	Sandbox *uint32
	// Recreated reports that there was a sandbox before.
	Recreated bool
	Pull      []string
	Start     []string
	Kill      []Kill
	// Done reports that the Pod has finished by itself and nothing shall run any more.
	Done bool
	// WakeAfter is when to reconcile again even if nothing happens; 0 for never.
	WakeAfter time.Duration
	// BackingOff are the containers in restart back-off.
	BackingOff []string
	// Reset are the runs to be removed, so that all containers start from the beginning.
	Reset []string
}

// Kill is a container to be stopped.
type Kill struct {
	ID, Name string
	Message  string
	Grace    *int64 // grace period in seconds, nil for that of the Pod
}

// sandboxProblem returns why a new sandbox is needed; it is empty if the newest one is usable.
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

// ComputePlan computes the plan for a Pod that shall run. It is a pure function.
func ComputePlan(p *corev1.Pod, f *fact.Pod, k PlanInput) Plan {
	plan := Plan{Volumes: !k.Volumes}
	if mustRestartAll(p, f) {
		return planReset(p, f, plan)
	}
	if sandboxProblem(p, f) != "" {
		return planSandbox(p, f, k, plan)
	}
	for i := range p.Spec.EphemeralContainers {
		name := p.Spec.EphemeralContainers[i].Name
		if _, found := f.Of(name); !found {
			plan.start(name, k) // they run once
		}
	}
	if planInit(p, f, k, &plan) {
		planRegular(p, f, k, &plan)
	}
	return plan
}

// planSandbox plans a new sandbox, in which all containers start from the beginning.
func planSandbox(p *corev1.Pod, f *fact.Pod, k PlanInput, plan Plan) Plan {
	attempt := uint32(0)
	if len(f.Sandboxes) > 0 {
		attempt, plan.Recreated = f.Sandboxes[0].Attempt+1, true
	}
	if p.Spec.RestartPolicy == corev1.RestartPolicyNever && attempt > 0 && len(f.Containers) > 0 && !anyMayRestart(p) {
		return Plan{Done: true}
	}
	var names []string
	seen := false
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		run, found := f.Of(c.Name)
		seen = seen || found
		if found && run.State == fact.Exited && !shouldRestart(p, c, exitOf(run)) {
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

// anyMayRestart reports whether a container may be restarted although the Pod's restart policy is Never.
func anyMayRestart(p *corev1.Pod) bool {
	for c := range Containers(p) {
		if c.RestartPolicy != nil && *c.RestartPolicy != corev1.ContainerRestartPolicyNever || len(c.RestartPolicyRules) > 0 {
			return true
		}
	}
	return false
}

// planInit plans the init containers, and reports whether the regular containers may run.
func planInit(p *corev1.Pod, f *fact.Pod, k PlanInput, plan *Plan) bool {
	before := hasBegun(p, f)
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		run, found := CurrentRun(f, c.Name)
		if IsSidecar(c) {
			if !planSidecar(c, run, found, k, plan) && (!before || isPaused(p, f)) {
				return false
			}
			continue
		}
		switch {
		case before: // it has completed, even if the runtime has removed it
		case !found || run.State == fact.Created || run.State == fact.Unknown:
			if found && run.State == fact.Unknown {
				plan.kill(c, run, k, "Init container is in \"unknown\" state, try killing it before restart", nil)
			}
			plan.start(c.Name, k)
			return false
		case run.State == fact.Running:
			return false
		case !run.Succeeded():
			if !shouldRestart(p, c, exitOf(run)) {
				*plan = Plan{Done: true}
				return false
			}
			plan.restart(c.Name, run, k)
			return false
		}
	}
	return true
}

// planSidecar plans a sidecar, and reports whether it has started.
func planSidecar(c *corev1.Container, run *fact.Container, found bool, k PlanInput, plan *Plan) bool {
	switch {
	case !found || run.State == fact.Created:
		plan.start(c.Name, k)
		return false
	case run.State == fact.Unknown:
		plan.kill(c, run, k, "Init container is in \"unknown\" state, try killing it before restart", nil)
		return false
	case run.State == fact.Exited:
		plan.restart(c.Name, run, k)
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

// planRegular plans the regular containers.
func planRegular(p *corev1.Pod, f *fact.Pod, k PlanInput, plan *Plan) {
	alive := 0
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		run, found := f.Of(c.Name)
		if !found || run.State != fact.Running {
			switch {
			case !shouldStart(p, c, f):
			case found && run.State == fact.Unknown:
				alive++
				plan.kill(c, run, k, "Container is in \"unknown\" state, try killing it before restart", nil)
			case found && run.State == fact.Exited:
				alive++
				plan.restart(c.Name, run, k)
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
		alive += busyCount(k, c.Name)
	}
	if alive == 0 && len(plan.Kill) == 0 {
		*plan = Plan{Done: true}
	}
}

// busyCount counts a container that is being stopped: the Pod is not done before that has ended.
func busyCount(k PlanInput, name string) int {
	if k.Busy[name] {
		return 1
	}
	return 0
}

// planReset plans that all containers are removed and start from the beginning; those that have ended are removed last.
func planReset(p *corev1.Pod, f *fact.Pod, plan Plan) Plan {
	var last []string
	for i := range f.Containers {
		c := &f.Containers[i]
		if spec, _ := FindContainer(p, c.Name); spec == nil {
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

// start plans the first run of a container, or another attempt after a failed start.
func (plan *Plan) start(name string, k PlanInput) {
	if k.Busy[name] {
		return
	}
	if wait := k.Hold(name); wait > 0 {
		plan.WakeWithin(wait)
		return
	}
	switch {
	case !k.Images[name]:
		plan.Pull = append(plan.Pull, name)
	case k.Volumes:
		plan.Start = append(plan.Start, name)
	}
}

// restart plans the restart of a container that has ended.
func (plan *Plan) restart(name string, run *fact.Container, k PlanInput) {
	if wait := k.Backoff(name, run.Finished); wait > 0 && !k.Busy[name] {
		plan.BackingOff = append(plan.BackingOff, name)
		plan.WakeWithin(wait)
		return
	}
	plan.start(name, k)
}

func (plan *Plan) kill(c *corev1.Container, run *fact.Container, k PlanInput, message string, grace *int64) {
	if !k.Busy[c.Name] {
		plan.Kill = append(plan.Kill, Kill{ID: run.ID, Name: c.Name, Message: message, Grace: grace})
	}
}

// WakeWithin makes the worker reconcile after the given time at the latest.
func (plan *Plan) WakeWithin(after time.Duration) {
	if plan.WakeAfter == 0 || after < plan.WakeAfter {
		plan.WakeAfter = after
	}
}
