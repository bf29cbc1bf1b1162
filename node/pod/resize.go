package pod

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/cri"
	"proa.dev/node/fact"
)

// A Pod may ask for other resources while it runs. What it asks for is in its spec; what it has been allotted is what the
// node has agreed to, and what its containers and groups are made with. What has been agreed to is in the Pod's status, so
// that another agent goes on with it.

// allotment is what the containers of a Pod may have.
type allotment map[string]corev1.ResourceRequirements

// scalable are the resources that can change while a container runs.
func scalable() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
}

// allotted is what the status says that a Pod has been allotted, and what its spec says where the status is silent.
func allotted(p *corev1.Pod) allotment {
	out := allotment{}
	for c := range containers(p) {
		r := *c.Resources.DeepCopy()
		if st := statusOf(p, c.Name); st != nil && st.ContainerID != "" && st.Resources != nil {
			take(r.Requests, st.AllocatedResources)
			take(r.Limits, st.Resources.Limits)
		}
		out[c.Name] = r
	}
	return out
}

// take copies the resources that can change.
func take(to, from corev1.ResourceList) {
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

// same says that two amounts of what can change are the same; an amount that is not said is 0.
func same(a, b corev1.ResourceRequirements, name corev1.ResourceName) bool {
	return a.Limits.Name(name, "").Cmp(*b.Limits.Name(name, "")) == 0 && a.Requests.Name(name, "").Cmp(*b.Requests.Name(name, "")) == 0
}

// asks says that the spec of a Pod asks for something else than it has been allotted.
func (a allotment) asks(p *corev1.Pod) bool {
	for c := range containers(p) {
		for _, name := range scalable() {
			if have, known := a[c.Name]; known && !same(have, c.Resources, name) {
				return true
			}
		}
	}
	return false
}

// apply is the Pod with what it has been allotted instead of what it asks for.
func (a allotment) apply(p *corev1.Pod) *corev1.Pod {
	if !a.asks(p) {
		return p
	}
	p = p.DeepCopy()
	for c := range containers(p) {
		if have, known := a[c.Name]; known {
			c.Resources = *have.DeepCopy()
		}
	}
	return p
}

// Fit is the answer to a Pod that asks for other resources: nothing, or why not.
type Fit struct {
	// Reason is Deferred where it may fit later, Infeasible where it never will, and empty where it fits.
	Reason, Message string
}

// allot agrees to what a Pod asks for, if the node has it, and returns the Pod as it shall be run.
func (w *worker) allot(p *corev1.Pod, f *fact.Pod) *corev1.Pod {
	if w.allotted == nil {
		w.allotted = allotted(p)
		w.given = allotment{}
		for name, r := range w.allotted {
			w.given[name] = r
		}
	}
	w.pending = nil
	if !w.allotted.asks(p) || fact.Static(p) {
		return p
	}
	if len(f.Containers) > 0 && w.m.Fits != nil {
		if fit := w.m.Fits(p, w.allotted.apply(p)); fit.Reason != "" {
			w.pending = &corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: fit.Reason, Message: fit.Message, ObservedGeneration: p.Generation}
			if w.toldFit != fit {
				w.toldFit = fit
				w.m.Events.Event(p, "", corev1.EventTypeWarning, "Resize"+fit.Reason, "Pod resize %s: %s", fit.Reason, tellResize(p, fit.Message))
			}
			return w.allotted.apply(p)
		}
	}
	w.toldFit = Fit{}
	w.allotted = allotment{}
	for c := range containers(p) {
		w.allotted[c.Name] = *c.Resources.DeepCopy()
	}
	w.m.Events.Event(p, "", corev1.EventTypeNormal, "ResizeStarted", "Pod resize started: %s", tellResize(p, ""))
	return p
}

// tellResize says in one line what a Pod has been allotted.
func tellResize(p *corev1.Pod, problem string) string {
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

// resizes are the running containers that do not have yet what they have been allotted, and those of them that must run anew
// for it.
func (w *worker) resizes(p *corev1.Pod, f *fact.Pod) (change []string, again []Kill) {
	for c := range containers(p) {
		run, found := current(f, c.Name)
		have, known := w.given[c.Name]
		if !found || run.State != fact.Running || !known || w.busy[c.Name] != nil {
			continue
		}
		restart, differs := false, false
		for _, name := range scalable() {
			if same(have, c.Resources, name) {
				continue
			}
			differs = true
			for _, policy := range c.ResizePolicy {
				restart = restart || policy.ResourceName == name && policy.RestartPolicy == corev1.RestartContainer
			}
		}
		switch {
		case restart:
			again = append(again, Kill{ID: run.ID, Name: c.Name, Message: fmt.Sprintf("Container %s resize requires restart", c.Name)})
		case differs:
			change = append(change, c.Name)
		}
	}
	return change, again
}

// resize gives running containers what they have been allotted: the Pod's group first where it grows, so that there is room,
// and last where it shrinks.
func (w *worker) resize(ctx context.Context, p *corev1.Pod, f *fact.Pod, names []string) {
	w.do(ctx, workResize, func(ctx context.Context) func(bool) {
		err := w.m.Cgroups.Update(p) // refused where it shrinks below what is in use; the second time decides
		for _, name := range names {
			c, _ := find(p, name)
			run, _ := current(f, name)
			_, err2 := w.m.Client.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: run.ID, Linux: w.m.Maker.Resources(p, c)})
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
				c, _ := find(p, name)
				w.given[name] = *c.Resources.DeepCopy()
			}
			w.m.Events.Event(p, "", corev1.EventTypeNormal, "ResizeCompleted", "Pod resize completed: %s", tellResize(p, ""))
		}
	})
}

// resizing are the conditions that say how far a change of resources is.
func (w *worker) resizing(p *corev1.Pod, f *fact.Pod) (out []corev1.PodCondition) {
	if w.pending != nil {
		out = append(out, *w.pending)
	}
	change, again := w.resizes(p, f)
	if len(change)+len(again) > 0 || w.busy[workResize] != nil {
		c := corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue, ObservedGeneration: p.Generation}
		if w.resizeError != "" {
			c.Reason, c.Message = corev1.PodReasonError, w.resizeError
		}
		out = append(out, c)
	}
	return out
}
