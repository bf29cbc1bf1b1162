package podstate

import (
	"iter"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/fact"
)

// Containers iterates over the init containers and then the regular containers, without ephemeral containers.
func Containers(p *corev1.Pod) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for i := range p.Spec.InitContainers {
			if !yield(&p.Spec.InitContainers[i]) {
				return
			}
		}
		for i := range p.Spec.Containers {
			if !yield(&p.Spec.Containers[i]) {
				return
			}
		}
	}
}

// FindContainer returns a container of any kind by its name, and for an ephemeral container the name of its target container.
func FindContainer(p *corev1.Pod, name string) (c *corev1.Container, target string) {
	for c := range Containers(p) {
		if c.Name == name {
			return c, ""
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if e := &p.Spec.EphemeralContainers[i]; e.Name == name {
			return (*corev1.Container)(&e.EphemeralContainerCommon), e.TargetContainerName
		}
	}
	return nil, ""
}

// CurrentRun returns the newest run of a container if it is in the newest sandbox; runs in earlier sandboxes do not count.
func CurrentRun(f *fact.Pod, name string) (*fact.Container, bool) {
	run, found := f.Of(name)
	if !found || len(f.Sandboxes) == 0 || run.SandboxID != f.Sandboxes[0].ID {
		return nil, false
	}
	return run, true
}

// hasBegun reports whether a regular container has been started in the newest sandbox: the init containers have completed.
func hasBegun(p *corev1.Pod, f *fact.Pod) bool {
	for i := range p.Spec.Containers {
		if run, found := CurrentRun(f, p.Spec.Containers[i].Name); found && (run.State == fact.Running || run.State == fact.Exited) {
			return true
		}
	}
	return false
}

// IsTerminal reports whether a Pod in a phase has ended for good.
func IsTerminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
