package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// verdict is what the failure policy says about a failed Pod.
type verdict struct {
	// action is that of the first rule that matches; empty when none does, and then the failure counts.
	action batchv1.PodFailurePolicyAction
	// message says why the Job fails; only with FailJob.
	message string
}

func (v verdict) counts() bool { return v.action != batchv1.PodFailurePolicyActionIgnore }

// judge puts a failed Pod to the rules of a failure policy.
func judge(policy *batchv1.PodFailurePolicy, pod *corev1.Pod) verdict {
	if policy == nil {
		return verdict{}
	}
	for i := range policy.Rules {
		rule := &policy.Rules[i]
		why, matches := "", false
		switch {
		case rule.OnExitCodes != nil:
			if c := failedContainer(pod, rule.OnExitCodes); c != nil {
				matches = true
				why = fmt.Sprintf("Container %s for pod %s/%s failed with exit code %v matching %v rule at index %d",
					c.Name, pod.Namespace, pod.Name, c.State.Terminated.ExitCode, rule.Action, i)
			}
		case rule.OnPodConditions != nil:
			if c := matchingCondition(pod, rule.OnPodConditions); c != nil {
				matches = true
				why = fmt.Sprintf("Pod %s/%s has condition %v matching %v rule at index %d", pod.Namespace, pod.Name, c.Type, rule.Action, i)
			}
		}
		if !matches {
			continue
		}
		switch rule.Action {
		case batchv1.PodFailurePolicyActionFailJob:
			return verdict{rule.Action, why}
		case batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionFailIndex, batchv1.PodFailurePolicyActionCount:
			return verdict{action: rule.Action}
		}
	}
	return verdict{}
}

// failedContainer finds a container that ended with an exit code a rule names. Containers come before init containers.
func failedContainer(pod *corev1.Pod, want *batchv1.PodFailurePolicyOnExitCodesRequirement) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range list {
			ended := list[i].State.Terminated
			if ended == nil || ended.ExitCode == 0 || want.ContainerName != nil && *want.ContainerName != list[i].Name {
				continue
			}
			named := slices.Contains(want.Values, ended.ExitCode)
			if want.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && named || want.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn && !named {
				return &list[i]
			}
		}
	}
	return nil
}

func matchingCondition(pod *corev1.Pod, patterns []batchv1.PodFailurePolicyOnPodConditionsPattern) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		for _, p := range patterns {
			if c.Type == p.Type && c.Status == p.Status {
				return c
			}
		}
	}
	return nil
}

// successMessage says which rule of a success policy the succeeded indexes satisfy, or is empty.
func successMessage(policy *batchv1.SuccessPolicy, completions int, succeeded indexes) string {
	if policy == nil || len(succeeded) == 0 {
		return ""
	}
	for i, rule := range policy.Rules {
		met := false
		if rule.SucceededIndexes != nil {
			wanted := parseIndexes(*rule.SucceededIndexes, completions)
			n := wanted.common(succeeded)
			met = len(wanted) > 0 && (n == wanted.count() || rule.SucceededCount != nil && n >= int(*rule.SucceededCount))
		} else {
			met = rule.SucceededCount != nil && succeeded.count() >= int(*rule.SucceededCount)
		}
		if met {
			return fmt.Sprintf("Matched rules at index %d", i)
		}
	}
	return ""
}
