package validate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	resourcehelper "k8s.io/component-helpers/resource"

	"proa.dev/kinds/kind"
)

// limitRanger checks pods and claims against the LimitRanges of their namespace.
func limitRanger(ctx context.Context, a *kind.Admission) error {
	switch a.Object.(type) {
	case *corev1.Pod:
		if !a.IsCreate() && a.Sub != "resize" { // nothing else changes what containers request
			return nil
		}
	case *corev1.PersistentVolumeClaim:
		if a.Sub != "" {
			return nil
		}
	default:
		return nil
	}
	if a.Old != nil && a.Old.GetDeletionTimestamp() != nil {
		return nil
	}
	return checkLimitRanges(ctx, a)
}

// checkLimitRanges checks an object against every LimitRange of its namespace.
func checkLimitRanges(ctx context.Context, a *kind.Admission) error {
	ranges, err := a.Server.List(ctx, schema.GroupResource{Resource: "limitranges"}, a.Namespace)
	if err != nil {
		return a.Forbid(err)
	}
	for o := range ranges {
		if r, ok := o.(*corev1.LimitRange); ok {
			if err := checkLimitRange(r, a.Object); err != nil {
				return a.Forbid(err)
			}
		}
	}
	return nil
}

func checkLimitRange(r *corev1.LimitRange, o kind.Object) error {
	switch o := o.(type) {
	case *corev1.Pod:
		return checkPod(o, r)
	case *corev1.PersistentVolumeClaim:
		return checkClaim(o, r)
	}
	return nil
}

// checkPod checks each container, and the pod as a whole.
func checkPod(pod *corev1.Pod, r *corev1.LimitRange) error {
	var errs []error
	for i := range r.Spec.Limits {
		l := &r.Spec.Limits[i]
		switch l.Type {
		case corev1.LimitTypeContainer:
			for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
				for j := range list {
					errs = append(errs, violations(l, list[j].Resources.Requests, list[j].Resources.Limits)...)
				}
			}
		case corev1.LimitTypePod:
			requests, limits := podTotals(pod)
			errs = append(errs, violations(l, requests, limits)...)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// podTotals returns what all containers together request, or the requests of the pod as a whole where it has them. The
// overhead of a runtime is not the user's and does not count.
func podTotals(pod *corev1.Pod) (requests, limits corev1.ResourceList) {
	requests = resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	limits = resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{})
	if r := pod.Spec.Resources; r != nil {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if q, ok := r.Requests[name]; ok {
				requests[name] = q
			}
			if q, ok := r.Limits[name]; ok {
				limits[name] = q
			}
		}
	}
	return requests, limits
}

// checkClaim checks what a claim requests; claims have no limits.
func checkClaim(claim *corev1.PersistentVolumeClaim, r *corev1.LimitRange) error {
	var errs []error
	for i := range r.Spec.Limits {
		l := &r.Spec.Limits[i]
		if l.Type != corev1.LimitTypePersistentVolumeClaim {
			continue
		}
		requests := claim.Spec.Resources.Requests
		for name, least := range sortedByName(l.Min) {
			errs = appendError(errs, atLeast(l.Type, name, least, requests, nil))
		}
		for name, most := range sortedByName(l.Max) {
			errs = appendError(errs, requestAtMost(l.Type, name, most, requests))
		}
	}
	return utilerrors.NewAggregate(errs)
}
