package pod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/fact"
)

// sidecar says that an init container runs beside the others for the Pod's whole life.
func sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// exit is how a run of a container ended, as far as it decides about the next one.
type exit struct {
	code int32
	// interrupted says that the run had to end because the node stopped. It counts as a failure, whatever the code is, and no rule
	// about codes applies to it.
	interrupted bool
}

func (e exit) failed() bool { return e.code != 0 || e.interrupted }

// exitOf is how a run ended.
func exitOf(run *fact.Container) exit { return exit{run.ExitCode, run.Interrupted} }

// exitIn is how a run ended of which a status tells.
func exitIn(t *corev1.ContainerStateTerminated) exit {
	return exit{t.ExitCode, t.Reason == reasonTerminated}
}

// restarts says that a container which ended shall run again: by its first rule that matches, else by its own policy, else by the
// Pod's.
func restarts(p *corev1.Pod, c *corev1.Container, end exit) bool {
	policy := string(p.Spec.RestartPolicy)
	if c.RestartPolicy != nil {
		if !end.interrupted && ruled(c, end.code) {
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

// ruled says that a rule of a container wants it to run again after a code. Every rule there is says so, be it for the
// container alone or for all.
func ruled(c *corev1.Container, code int32) bool {
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

// wanted says that a container which does not run shall be started.
func wanted(p *corev1.Pod, c *corev1.Container, f *fact.Pod) bool {
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
	return restarts(p, c, exitOf(run))
}

// restartsAfterFailure says that the Pod's policy, or the container's own, lets a container run again that was ended.
func restartsAfterFailure(p *corev1.Pod, c *corev1.Container) bool {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	return p.Spec.RestartPolicy != corev1.RestartPolicyNever
}

// restartAll says that a container ended in a way after which all containers of the Pod shall run anew.
func restartAll(p *corev1.Pod, f *fact.Pod) bool {
	for c := range containers(p) {
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
