package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/cri"
	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/podstate"
)

// In-place resize. The spec of a Pod says which resources it asks for; its allotment is what the node has agreed to,
// and what its containers and cgroups are created with. The allotment is part of the Pod's status, so that another
// agent continues with it.

// allotment holds the resources that the node has agreed to give the containers of a Pod.
type allotment map[string]corev1.ResourceRequirements

// scalable returns the resources that can be resized in place.
func scalable() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
}

// readAllotment reads the allotment of a Pod from its status, and where the status has none from its spec.
func readAllotment(p *corev1.Pod) allotment {
	out := allotment{}
	for c := range podstate.Containers(p) {
		r := *c.Resources.DeepCopy()
		if st := statusOf(p, c.Name); st != nil && st.ContainerID != "" && st.Resources != nil {
			copyScalable(r.Requests, st.AllocatedResources)
			copyScalable(r.Limits, st.Resources.Limits)
		}
		out[c.Name] = r
	}
	return out
}

// copyScalable copies the resources that can be resized.
func copyScalable(to, from corev1.ResourceList) {
	for _, name := range scalable() {
		if q, found := from[name]; found && to != nil {
			to[name] = q
		}
	}
}

func statusOf(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		if at := slices.IndexFunc(list, func(s corev1.ContainerStatus) bool { return s.Name == name }); at >= 0 {
			return &list[at]
		}
	}
	return nil
}

// equalAmounts reports whether requests and limits of a resource are equal; a missing amount counts as 0.
func equalAmounts(a, b corev1.ResourceRequirements, name corev1.ResourceName) bool {
	return a.Limits.Name(name, "").Cmp(*b.Limits.Name(name, "")) == 0 && a.Requests.Name(name, "").Cmp(*b.Requests.Name(name, "")) == 0
}

// differsFrom reports whether the spec of a Pod differs from its allotment.
func (a allotment) differsFrom(p *corev1.Pod) bool {
	for c := range podstate.Containers(p) {
		for _, name := range scalable() {
			if have, known := a[c.Name]; known && !equalAmounts(have, c.Resources, name) {
				return true
			}
		}
	}
	return false
}

// apply returns the Pod with its allotment in place of the resources that its spec asks for.
func (a allotment) apply(p *corev1.Pod) *corev1.Pod {
	if !a.differsFrom(p) {
		return p
	}
	p = p.DeepCopy()
	for c := range podstate.Containers(p) {
		if have, known := a[c.Name]; known {
			c.Resources = *have.DeepCopy()
		}
	}
	return p
}

// Fit is the answer to a Pod that asks for other resources.
type Fit struct {
	// Reason is Deferred if the resize may become possible later, Infeasible if it never will, and empty if it is
	// possible now.
	Reason, Message string
}

// allot agrees to the resources that a Pod asks for, if the node has them, and returns the Pod as it shall run.
func (w *worker) allot(p *corev1.Pod, f *fact.Pod) *corev1.Pod {
	if w.allotted == nil {
		w.allotted = readAllotment(p)
		w.given = allotment{}
		for name, r := range w.allotted {
			w.given[name] = r
		}
	}
	w.pending = nil
	if !w.allotted.differsFrom(p) || fact.Static(p) {
		return p
	}
	if len(f.Containers) > 0 && w.m.CheckResize != nil {
		if fit := w.m.CheckResize(p, w.allotted.apply(p)); fit.Reason != "" {
			w.pending = &corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: fit.Reason,
				Message: fit.Message, ObservedGeneration: p.Generation}
			if w.lastFit != fit {
				w.lastFit = fit
				w.m.Events.Event(event.Pod(p), corev1.EventTypeWarning, "Resize"+fit.Reason, "Pod resize %s: %s", fit.Reason,
					describeResize(p, fit.Message))
			}
			return w.allotted.apply(p)
		}
	}
	w.lastFit = Fit{}
	w.allotted = allotment{}
	for c := range podstate.Containers(p) {
		w.allotted[c.Name] = *c.Resources.DeepCopy()
	}
	w.m.Events.Event(event.Pod(p), corev1.EventTypeNormal, "ResizeStarted", "Pod resize started: %s", describeResize(p, ""))
	return p
}

// describeResize describes the allotment of a Pod as one line of JSON, for Events.
func describeResize(p *corev1.Pod, problem string) string {
	type one struct {
		Name      string                      `json:"name"`
		Resources corev1.ResourceRequirements `json:"resources"`
	}
	var all struct {
		InitContainers []one  `json:"initContainers,omitempty"`
		Containers     []one  `json:"containers,omitempty"`
		Generation     int64  `json:"generation"`
		Error          string `json:"error,omitempty"`
	}
	for i := range p.Spec.Containers {
		all.Containers = append(all.Containers, one{p.Spec.Containers[i].Name, p.Spec.Containers[i].Resources})
	}
	for i := range p.Spec.InitContainers {
		all.InitContainers = append(all.InitContainers, one{p.Spec.InitContainers[i].Name, p.Spec.InitContainers[i].Resources})
	}
	all.Generation, all.Error = p.Generation, problem
	text, err := json.Marshal(all)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// pendingResizes returns the running containers that do not have their allotment yet: those to be changed in place, and those
// that must be restarted for it.
func (w *worker) pendingResizes(p *corev1.Pod, f *fact.Pod) (change []string, again []podstate.Kill) {
	for c := range podstate.Containers(p) {
		run, found := podstate.CurrentRun(f, c.Name)
		have, known := w.given[c.Name]
		if !found || run.State != fact.Running || !known || w.busy[c.Name] != nil {
			continue
		}
		restart, differs := false, false
		for _, name := range scalable() {
			if equalAmounts(have, c.Resources, name) {
				continue
			}
			differs = true
			for _, policy := range c.ResizePolicy {
				restart = restart || policy.ResourceName == name && policy.RestartPolicy == corev1.RestartContainer
			}
		}
		switch {
		case restart:
			again = append(again, podstate.Kill{ID: run.ID, Name: c.Name,
				Message: fmt.Sprintf("Container %s resize requires restart", c.Name)})
		case differs:
			change = append(change, c.Name)
		}
	}
	return change, again
}

// resize gives running containers their allotment. The Pod's cgroup is updated first if it grows, so that the
// containers fit in, and last if it shrinks.
func (w *worker) resize(ctx context.Context, p *corev1.Pod, f *fact.Pod, names []string) {
	w.doNoted(ctx, workResize, func(ctx context.Context) func(bool) {
		err := w.m.Cgroups.Update(p) // fails if it would shrink below what is in use; then it is repeated below
		for _, name := range names {
			c, _ := podstate.FindContainer(p, name)
			run, _ := podstate.CurrentRun(f, name)
			_, err2 := w.m.Client.UpdateContainerResources(ctx,
				&cri.UpdateContainerResourcesRequest{ContainerId: run.ID, Linux: w.m.Maker.Resources(p, c)})
			if err2 != nil {
				return func(bool) {
					w.resizeError = cri.Message(err2)
					w.retry(workResize)
				}
			}
		}
		if err != nil {
			err = w.m.Cgroups.Update(p)
		}
		return func(broken bool) {
			if err != nil && !broken {
				w.resizeError = err.Error()
				w.retry(workResize)
				return
			}
			w.resizeError = ""
			for _, name := range names {
				c, _ := podstate.FindContainer(p, name)
				w.given[name] = *c.Resources.DeepCopy()
			}
			w.m.Events.Event(event.Pod(p), corev1.EventTypeNormal, "ResizeCompleted", "Pod resize completed: %s", describeResize(p, ""))
		}
	})
}

// resizeConditions returns the conditions that report the progress of a resize.
func (w *worker) resizeConditions(p *corev1.Pod, f *fact.Pod) (out []corev1.PodCondition) {
	if w.pending != nil {
		out = append(out, *w.pending)
	}
	change, again := w.pendingResizes(p, f)
	if len(change)+len(again) > 0 || w.busy[workResize] != nil {
		c := corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue, ObservedGeneration: p.Generation}
		if w.resizeError != "" {
			c.Reason, c.Message = corev1.PodReasonError, w.resizeError
		}
		out = append(out, c)
	}
	return out
}
