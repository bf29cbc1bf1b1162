package podstate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/fact"
)

// IsSidecar reports whether an init container is a sidecar, which runs during the whole life of the Pod.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// exit is how a run of a container ended, as far as its restart depends on it.
type exit struct {
	code int32
	// interrupted reports that the run ended because the node was stopped. That counts as a failure, whatever the exit
	// code is, and no restart rule about exit codes applies.
	interrupted bool
}

func (e exit) failed() bool { return e.code != 0 || e.interrupted }

// exitOf returns how a run ended.
func exitOf(run *fact.Container) exit { return exit{run.ExitCode, run.Interrupted} }

// exitInStatus returns how a run ended according to a container status.
func exitInStatus(t *corev1.ContainerStateTerminated) exit {
	return exit{t.ExitCode, t.Reason == ReasonTerminated}
}

// shouldRestart reports whether a container that has ended shall be restarted: by its first restart rule that matches,
// otherwise by its own restart policy, otherwise by that of the Pod.
func shouldRestart(p *corev1.Pod, c *corev1.Container, end exit) bool {
	policy := string(p.Spec.RestartPolicy)
	if c.RestartPolicy != nil {
		if !end.interrupted && matchesRestartRule(c, end.code) {
			return true
		}
		policy = string(*c.RestartPolicy)
	}
	switch policy {
	case string(corev1.RestartPolicyNever):
		return false
	case string(corev1.RestartPolicyOnFailure):
		return end.failed()
	}
	return true
}

// matchesRestartRule reports whether a restart rule of a container matches an exit code. Every action that exists restarts at least
// the container itself.
func matchesRestartRule(c *corev1.Container, code int32) bool {
	for i := range c.RestartPolicyRules {
		if matches(&c.RestartPolicyRules[i], code) {
			return true
		}
	}
	return false
}

func matches(r *corev1.ContainerRestartRule, code int32) bool {
	if r.ExitCodes == nil {
		return false
	}
	return slices.Contains(r.ExitCodes.Values, code) == (r.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
}

// shouldStart reports whether a container that does not run shall be started.
func shouldStart(p *corev1.Pod, c *corev1.Container, f *fact.Pod) bool {
	if p.DeletionTimestamp != nil {
		return false
	}
	run, found := f.Of(c.Name)
	switch {
	case !found:
		return true
	case run.State == fact.Running:
		return false
	case run.State != fact.Exited:
		return true
	}
	return shouldRestart(p, c, exitOf(run))
}

// restartsAfterFailure reports whether a container may be restarted after it was stopped because of a failed probe.
func restartsAfterFailure(p *corev1.Pod, c *corev1.Container) bool {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	return p.Spec.RestartPolicy != corev1.RestartPolicyNever
}

// mustRestartAll reports whether a container ended in a way after which all containers of the Pod shall be restarted.
func mustRestartAll(p *corev1.Pod, f *fact.Pod) bool {
	for c := range Containers(p) {
		run, found := f.Of(c.Name)
		if !found || run.State != fact.Exited || run.Interrupted {
			continue
		}
		for i := range c.RestartPolicyRules {
			r := &c.RestartPolicyRules[i]
			if matches(r, run.ExitCode) {
				if r.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
					return true
				}
				break
			}
		}
	}
	return false
}
