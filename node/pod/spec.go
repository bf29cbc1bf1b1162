package pod

import (
	"iter"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/fact"
)

// containers are the init containers and then the others, without those that people add to look inside.
func containers(p *corev1.Pod) iter.Seq[*corev1.Container] {
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

// find returns a container of any kind by its name, with the container whose processes it shares, if it names one.
func find(p *corev1.Pod, name string) (c *corev1.Container, target string) {
	for c := range containers(p) {
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

// current is the newest run of a container in the newest sandbox: what ran in an earlier one belongs to an earlier life.
func current(f *fact.Pod, name string) (*fact.Container, bool) {
	run, found := f.Of(name)
	if !found || len(f.Sandboxes) == 0 || run.SandboxID != f.Sandboxes[0].ID {
		return nil, false
	}
	return run, true
}

// begun says that a regular container has been started in the newest sandbox: the init containers have done their work.
func begun(p *corev1.Pod, f *fact.Pod) bool {
	for i := range p.Spec.Containers {
		if run, found := current(f, p.Spec.Containers[i].Name); found && (run.State == fact.Running || run.State == fact.Exited) {
			return true
		}
	}
	return false
}

func terminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
