package mutate

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"proa.dev/kinds/kind"
)

// limitRanger sets the default requests and limits of the namespace on containers that have none. Whether they are
// within bounds is checked in hop 6.
func limitRanger(ctx context.Context, a *kind.Admission) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || !a.IsCreate() && a.Sub != "resize" {
		return nil
	}
	if a.Old != nil && a.Old.GetDeletionTimestamp() != nil {
		return nil
	}
	ranges, err := list[*corev1.LimitRange](ctx, a, "", "limitranges", a.Namespace)
	if err != nil {
		return a.Forbid(err)
	}
	for _, r := range ranges {
		fillResources(pod, r)
	}
	return nil
}

// fillResources applies the defaults of one LimitRange to a pod, and lists in an annotation what it has added.
func fillResources(pod *corev1.Pod, r *corev1.LimitRange) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range r.Spec.Limits {
		if l := &r.Spec.Limits[i]; l.Type == corev1.LimitTypeContainer {
			maps.Copy(requests, l.DefaultRequest)
			maps.Copy(limits, l.Default)
		}
	}
	var notes []string
	fill := func(list []corev1.Container, what string) {
		for i := range list {
			c := &list[i]
			// Requests come first in the annotation, as upstream writes it.
			if added := fillList(&c.Resources.Requests, requests); len(added) > 0 {
				notes = append(notes, strings.Join(added, ", ")+" request for "+what+" "+c.Name)
			}
			if added := fillList(&c.Resources.Limits, limits); len(added) > 0 {
				notes = append(notes, strings.Join(added, ", ")+" limit for "+what+" "+c.Name)
			}
		}
	}
	fill(pod.Spec.Containers, "container")
	fill(pod.Spec.InitContainers, "init container")
	if len(notes) == 0 {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations["kubernetes.io/limit-ranger"] = "LimitRanger plugin set: " + strings.Join(notes, "; ")
}

// fillList adds the defaults that a list lacks, and returns their names, sorted.
func fillList(list *corev1.ResourceList, defaults corev1.ResourceList) (added []string) {
	for name, q := range defaults {
		if _, set := (*list)[name]; !set {
			setQuantity(list, name, q)
			added = append(added, string(name))
		}
	}
	slices.Sort(added)
	return added
}

func setQuantity(list *corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = q.DeepCopy()
}
