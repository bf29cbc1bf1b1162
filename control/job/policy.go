package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// policyResult is the result of the Pod failure policy for a failed Pod.
type policyResult struct {
	// action is the action of the first rule that matches; empty when none does, and then the failure counts.
	action batchv1.PodFailurePolicyAction
	// message is the reason why the Job fails; only set for FailJob.
	message string
}

func (v policyResult) counts() bool { return v.action != batchv1.PodFailurePolicyActionIgnore }

// applyFailurePolicy applies the rules of a Pod failure policy to a failed Pod.
func applyFailurePolicy(policy *batchv1.PodFailurePolicy, pod *corev1.Pod) policyResult {
	if policy == nil {
		return policyResult{}
	}
	for i := range policy.Rules {
		rule := &policy.Rules[i]
		message, matches := "", false
		switch {
		case rule.OnExitCodes != nil:
			if c := failedContainer(pod, rule.OnExitCodes); c != nil {
				matches = true
				message = fmt.Sprintf("Container %s for pod %s/%s failed with exit code %v matching %v rule at index %d",
					c.Name, pod.Namespace, pod.Name, c.State.Terminated.ExitCode, rule.Action, i)
			}
		case rule.OnPodConditions != nil:
			if c := matchingCondition(pod, rule.OnPodConditions); c != nil {
				matches = true
				message = fmt.Sprintf("Pod %s/%s has condition %v matching %v rule at index %d", pod.Namespace, pod.Name, c.Type,
					rule.Action, i)
			}
		}
		if !matches {
			continue
		}
		switch rule.Action {
		case batchv1.PodFailurePolicyActionFailJob:
			return policyResult{rule.Action, message}
		case batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionFailIndex, batchv1.PodFailurePolicyActionCount:
			return policyResult{action: rule.Action}
		}
	}
	return policyResult{}
}

// failedContainer returns a container whose exit code matches a rule, or nil. Containers come before init containers.
func failedContainer(pod *corev1.Pod, want *batchv1.PodFailurePolicyOnExitCodesRequirement) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range list {
			ended := list[i].State.Terminated
			if ended == nil || ended.ExitCode == 0 || want.ContainerName != nil && *want.ContainerName != list[i].Name {
				continue
			}
			named := slices.Contains(want.Values, ended.ExitCode)
			if want.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && named ||
				want.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn && !named {
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

// successMessage returns a message with the rule of a success policy that the succeeded indexes satisfy, or "".
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
