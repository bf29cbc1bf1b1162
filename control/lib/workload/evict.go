package workload

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
)

// Evict sets the condition DisruptionTarget of a Pod with a reason, and deletes the Pod. It is no error if it was deleted
// already.
func Evict(ctx context.Context, c *control.Cluster, pod *corev1.Pod, reason, message string, now time.Time) error {
	if !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == reason
	}) {
		next := pod.DeepCopy()
		next.Status.Conditions = slices.DeleteFunc(next.Status.Conditions,
			func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
		next.Status.Conditions = append(next.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(now), ObservedGeneration: pod.Generation,
		})
		if _, err := c.Update(ctx, gr.Pods, next, "status"); err != nil {
			return control.IgnoreNotFound(err)
		}
	}
	return control.IgnoreNotFound(c.Delete(ctx, gr.Pods, pod.Namespace, pod.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}))
}
