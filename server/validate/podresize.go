package validate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"proa.dev/kinds/kind"
)

// podResize rejects a resize that exceeds the capacity of the node.
func podResize(ctx context.Context, a *kind.Admission) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || a.Sub != "resize" || a.Verb != "update" || pod.Spec.NodeName == "" || a.Old.GetGeneration() == pod.Generation {
		return nil
	}
	node, err := nodeOf(ctx, a, pod)
	if err != nil {
		return a.Forbid(err)
	}
	if system, ok := node.Labels[corev1.LabelOSStable]; ok && system != "linux" {
		return withCause(a.Forbidf("pod resize is only supported on linux nodes, node %q is %q", node.Name, system), "UnsupportedPlatform")
	}
	if err := checkFits(pod, node.Status.Allocatable); err != nil {
		return withCause(a.Forbid(err), "NodeCapacity")
	}
	return nil
}

// checkFits compares the requests of a pod with the allocatable resources of its node.
func checkFits(pod *corev1.Pod, allocatable corev1.ResourceList) error {
	asked := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	var over []string
	if cpu, has := asked.Cpu(), allocatable.Cpu(); cpu.Cmp(*has) > 0 {
		over = append(over, fmt.Sprintf("cpu, requested: %d, allocatable: %d", cpu.MilliValue(), has.MilliValue()))
	}
	if memory, has := asked.Memory(), allocatable.Memory(); memory.Cmp(*has) > 0 {
		over = append(over, fmt.Sprintf("memory, requested: %d, allocatable: %d", memory.Value(), has.Value()))
	}
	if over == nil {
		return nil
	}
	return fmt.Errorf("node didn't have enough allocatable resources: %s", strings.Join(over, "; "))
}

// withCause adds a machine-readable cause to an error.
func withCause(err error, cause metav1.CauseType) error {
	if st, ok := errors.AsType[*apierrors.StatusError](err); ok {
		st.ErrStatus.Details.Causes = append(st.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	}
	return err
}
