package mutate

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/placement"
	"proa.dev/server/admissionlib"
)

// podNodeSelector limits new pods to the nodes of their namespace.
func podNodeSelector(s placement.Selectors) func(context.Context, *kind.Admission) error {
	return func(ctx context.Context, a *kind.Admission) error {
		pod := admissionlib.NewPod(a)
		if pod == nil {
			return nil
		}
		ns, err := a.NamespaceObject(ctx)
		if err != nil {
			return err
		}
		wanted, err := s.Of(ns)
		if err != nil {
			return err
		}
		// Where both have the same label the value of the pod wins here, and the check below rejects it.
		selected := labels.Merge(wanted, pod.Spec.NodeSelector)
		if err := s.Check(selected, ns); err != nil {
			return apierrors.NewForbidden(a.Def.Resource(), pod.Name, err)
		}
		pod.Spec.NodeSelector = selected
		return nil
	}
}

// podTolerations adds the tolerations of the namespace to its pods, and rejects those that it does not allow.
func podTolerations(t placement.Tolerations) func(context.Context, *kind.Admission) error {
	return func(ctx context.Context, a *kind.Admission) error {
		pod, ok := a.Object.(*corev1.Pod)
		if !ok || a.Sub != "" {
			return nil
		}
		ns, err := a.NamespaceObject(ctx)
		if err != nil {
			return err
		}
		var extra []corev1.Toleration
		if a.Verb == "create" {
			if extra, err = t.Of(ns); err != nil {
				return err
			}
		}
		if requestsCompute(pod) {
			extra = append(slices.Clone(extra), corev1.Toleration{
				Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
			})
		}
		if len(extra) > 0 {
			pod.Spec.Tolerations = placement.Merge(pod.Spec.Tolerations, extra)
		}
		return t.Check(pod.Spec.Tolerations, ns)
	}
}

// requestsCompute reports whether a pod has another QoS class than BestEffort.
func requestsCompute(pod *corev1.Pod) bool {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass != corev1.PodQOSBestEffort
	}
	asks := func(r *corev1.ResourceRequirements) bool {
		for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
			if list.Cpu().Sign() > 0 || list.Memory().Sign() > 0 {
				return true
			}
		}
		return false
	}
	if pod.Spec.Resources != nil && asks(pod.Spec.Resources) {
		return true
	}
	return slices.ContainsFunc(slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers),
		func(c corev1.Container) bool { return asks(&c.Resources) })
}
