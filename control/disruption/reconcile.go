package disruption

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
)

// recheck is the time after which a budget whose status could not be computed is reconciled again.
const recheck = 5 * time.Minute

type reconciler struct{ mapper Mapper }

func (r *reconciler) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	if name, is := podOf(k); is {
		return reconcilePod(ctx, c, k.Namespace, name)
	}
	b, found := control.Get[*policyv1.PodDisruptionBudget](c, gr.PodDisruptionBudgets, k.Namespace, k.Name)
	if !found {
		return 0, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		c.Event(b, corev1.EventTypeWarning, "NoPods", "Failed to get pods: %v", err)
		return 0, store(ctx, c, b, failedStatus(b, err, time.Now()))
	}
	var pods []*corev1.Pod
	for p := range control.List[*corev1.Pod](c, gr.Pods, k.Namespace) {
		if selector.Matches(labels.Set(p.Labels)) {
			pods = append(pods, p)
		}
	}
	if len(pods) == 0 {
		c.Event(b, corev1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	f, err := decide(b, pods, r.finderFor(ctx, c, k.Namespace), time.Now())
	if err != nil {
		c.Event(b, corev1.EventTypeWarning, "CalculateExpectedPodCountFailed", "Failed to calculate the number of expected pods: %v", err)
		return recheck, store(ctx, c, b, failedStatus(b, err, time.Now()))
	}
	if f.unmanaged {
		c.Event(b, corev1.EventTypeWarning, "UnmanagedPods", "Pods selected by this PodDisruptionBudget (selector: %v) were found "+
			"to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. "+
			"To account for these pods please set \".spec.minAvailable\" "+
			"field of the PDB to an integer value.", b.Spec.Selector)
	}
	for _, p := range f.late { // upstream's message has the namespace twice
		c.Event(p, corev1.EventTypeWarning, "NotDeleted", "Pod was expected by PDB %s/%s to be deleted but it wasn't", b.Namespace,
			b.Namespace)
	}
	return f.again, store(ctx, c, b, f.status)
}

// store writes the status if it has changed. An eviction meanwhile makes it a conflict, and the retry sees the eviction.
func store(ctx context.Context, c *control.Cluster, b *policyv1.PodDisruptionBudget, s policyv1.PodDisruptionBudgetStatus) error {
	if apiequality.Semantic.DeepEqual(b.Status, s) {
		return nil
	}
	out := b.DeepCopy()
	out.Status = s
	_, err := c.Update(ctx, gr.PodDisruptionBudgets, out, "status")
	return err
}

// reconcilePod resets the condition DisruptionTarget of a Pod whose disruption has not begun in time.
func reconcilePod(ctx context.Context, c *control.Cluster, namespace, name string) (time.Duration, error) {
	p, found := control.Get[*corev1.Pod](c, gr.Pods, namespace, name)
	if !found {
		return 0, nil
	}
	next, wait := resetDisruptionTarget(p, time.Now())
	if next == nil {
		return wait, nil
	}
	_, err := c.Update(ctx, gr.Pods, next, "status")
	return 0, err
}
