package replicaset

import (
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

func (f *variant) reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	owner, found := c.View(f.on).Get(k.Namespace, k.Name)
	if !found {
		return 0, nil
	}
	rs, selector := f.read(owner), f.selector(owner)
	if selector == nil { // invalid, which validation rejects
		return 0, nil
	}
	var candidates, terminatingPods []*corev1.Pod
	for p := range workload.Candidates[*corev1.Pod](c, gr.Pods, owner) {
		switch {
		case workload.IsActive(p):
			candidates = append(candidates, p)
		case workload.IsTerminating(p):
			terminatingPods = append(terminatingPods, p)
		}
	}
	claimant := workload.Claimant[*corev1.Pod]{Owner: owner, Kind: f.gvk, On: f.on, Of: gr.Pods, Selector: selector}
	active, err := claimant.Claim(ctx, c, slices.Values(candidates))
	if err != nil {
		return 0, err
	}
	var terminating *int32
	if f.terminating {
		terminating = new(int32(len(claimant.Sort(slices.Values(terminatingPods)).Owned)))
	}

	failure := f.apply(ctx, c, owner, decide(rs, active, f.related(c, owner, active), time.Now()))
	now := time.Now()
	next := status(rs, active, terminating, failure, now)
	if !apiequality.Semantic.DeepEqual(rs.Status, next) {
		if _, err := c.Update(ctx, f.on, f.with(owner, next), "status"); err != nil {
			return 0, err
		}
	}
	return timeUntilAvailable(rs, &next, active, now), failure
}

// apply creates and deletes the Pods of a plan.
func (f *variant) apply(ctx context.Context, c *control.Cluster, owner kind.Object, p plan) error {
	template := &f.read(owner).Spec.Template
	_, err := workload.SlowStart(p.create, func(int) error {
		_, err := workload.Create(ctx, c, owner, workload.Pod(template, owner, f.gvk))
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil // nothing can be created there any more
		}
		return err
	})
	if err != nil {
		return err
	}
	_, err = workload.Parallel(len(p.remove), func(i int) error {
		err := workload.Delete(ctx, c, owner, p.remove[i])
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	return err
}

// related returns the Pods of all ReplicaSets with the same controller, such as a Deployment, or the active Pods of one
// without a controller.
func (f *variant) related(c *control.Cluster, owner kind.Object, active []*corev1.Pod) []*corev1.Pod {
	ref := metav1.GetControllerOfNoCopy(owner)
	if ref == nil || f.on != gr.ReplicaSets || len(active) <= int(wanted(f.read(owner))) {
		return active
	}
	var out []*corev1.Pod
	for sibling := range control.By[*appsv1.ReplicaSet](c, gr.ReplicaSets, client.ByOwner(), string(ref.UID)) {
		if metav1.IsControlledBy(sibling, &metav1.ObjectMeta{UID: ref.UID}) {
			out = slices.AppendSeq(out, control.Owned[*corev1.Pod](c, gr.Pods, sibling))
		}
	}
	return out
}
