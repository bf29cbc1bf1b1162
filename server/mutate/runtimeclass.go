package mutate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/placement"
	"proa.dev/server/admissionlib"
)

// runtimeClass sets the overhead of the runtime class, and the constraints on its nodes, on a new pod.
func runtimeClass(ctx context.Context, a *kind.Admission) error {
	pod := admissionlib.NewPod(a)
	if pod == nil || pod.Spec.RuntimeClassName == nil {
		return nil
	}
	name := *pod.Spec.RuntimeClassName
	if name == "" {
		return errors.New("resource name may not be empty")
	}
	o, err := a.Server.Get(ctx, schema.GroupResource{Group: nodev1.GroupName, Resource: "runtimeclasses"}, "", name)
	if apierrors.IsNotFound(err) {
		return a.Forbidf("pod rejected: RuntimeClass %q not found", name)
	}
	if err != nil {
		return err
	}
	class, ok := o.(*nodev1.RuntimeClass)
	if !ok {
		return fmt.Errorf("unexpected type %T", o)
	}
	if err := applyRuntimeClass(pod, class.DeepCopy()); err != nil {
		return a.Forbid(err)
	}
	return nil
}

// applyRuntimeClass merges a class into a pod. The pod may keep references to the class.
func applyRuntimeClass(pod *corev1.Pod, class *nodev1.RuntimeClass) error {
	if o := class.Overhead; o != nil {
		if len(pod.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(o.PodFixed, pod.Spec.Overhead) {
			return fmt.Errorf("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
		}
		pod.Spec.Overhead = o.PodFixed
	}
	s := class.Scheduling
	if s == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(s.NodeSelector)) {
		if v, ok := pod.Spec.NodeSelector[key]; ok && v != s.NodeSelector[key] {
			return fmt.Errorf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, s.NodeSelector[key], key, v)
		}
	}
	if pod.Spec.NodeSelector == nil {
		pod.Spec.NodeSelector = s.NodeSelector
	} else {
		maps.Copy(pod.Spec.NodeSelector, s.NodeSelector)
	}
	pod.Spec.Tolerations = placement.Merge(pod.Spec.Tolerations, s.Tolerations)
	return nil
}
