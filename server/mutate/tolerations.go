package mutate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/kind"
)

// The annotations by which a namespace has tolerations of its own.
const (
	defaultTolerations = "scheduler.alpha.kubernetes.io/defaultTolerations"
	allowedTolerations = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

// podTolerations gives the pods of a namespace its tolerations, and refuses those that it may not have.
func podTolerations(text []byte) (func(context.Context, *kind.Admission) error, error) {
	var c struct {
		metav1.TypeMeta `json:",inline"`
		Default         []corev1.Toleration `json:"default"`
		Whitelist       []corev1.Toleration `json:"whitelist"`
	}
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return nil, err
	}
	return func(ctx context.Context, a *kind.Admission) error {
		pod, ok := a.Object.(*corev1.Pod)
		if !ok || a.Sub != "" {
			return nil
		}
		ns, err := namespaceOf(ctx, a)
		if err != nil {
			return err
		}
		var extra []corev1.Toleration
		if a.Verb == "create" {
			if extra, err = tolerationsOf(ns, defaultTolerations, c.Default); err != nil {
				return err
			}
		}
		if asksForCompute(pod) {
			extra = append(slices.Clone(extra), corev1.Toleration{
				Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
			})
		}
		if len(extra) > 0 {
			pod.Spec.Tolerations = mergeTolerations(pod.Spec.Tolerations, extra)
		}
		allowed, err := tolerationsOf(ns, allowedTolerations, c.Whitelist)
		if err != nil {
			return err
		}
		whose := "cluster"
		if _, own := ns.Annotations[allowedTolerations]; own {
			whose = "namespace"
		}
		if !allAllowed(pod.Spec.Tolerations, allowed) {
			return fmt.Errorf("pod tolerations (possibly merged with namespace default tolerations) conflict with its %s whitelist", whose)
		}
		return nil
	}, nil
}

// tolerationsOf reads the tolerations in an annotation of a namespace. A namespace without it has those of the cluster, one
// that leaves it empty has none.
func tolerationsOf(ns *corev1.Namespace, key string, cluster []corev1.Toleration) ([]corev1.Toleration, error) {
	text, ok := ns.Annotations[key]
	if !ok {
		return cluster, nil
	}
	var out []corev1.Toleration
	if text == "" {
		return out, nil
	}
	err := json.Unmarshal([]byte(text), &out)
	return out, err
}

// asksForCompute says that a pod is not of the sort that goes first when memory gets short.
func asksForCompute(pod *corev1.Pod) bool {
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
	return slices.ContainsFunc(slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers), func(c corev1.Container) bool { return asks(&c.Resources) })
}

// allAllowed says that each toleration is covered by one that is allowed. An empty list allows everything.
func allAllowed(tolerations, allowed []corev1.Toleration) bool {
	if len(allowed) == 0 {
		return true
	}
	return !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		return !slices.ContainsFunc(allowed, func(w corev1.Toleration) bool { return covers(&w, &t) })
	})
}
