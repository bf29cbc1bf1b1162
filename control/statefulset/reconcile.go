package statefulset

import (
	"cmp"
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/lib/gr"
)

// reconcile brings one set closer to its desired state. defaults applies defaulting to a set from an older revision.
func reconcile(ctx context.Context, c *control.Cluster, k control.Key, defaults func(*appsv1.StatefulSet)) (time.Duration, error) {
	set, found := control.Get[*appsv1.StatefulSet](c, gr.StatefulSets, k.Namespace, k.Name)
	if !found {
		return 0, nil
	}
	s := &state{set: set, now: time.Now(), claim: func(name string) *corev1.PersistentVolumeClaim {
		claim, _ := control.Get[*corev1.PersistentVolumeClaim](c, gr.PersistentVolumeClaims, k.Namespace, name)
		return claim
	}}
	h, err := loadState(ctx, c, s, defaults)
	if err != nil || h == nil {
		return 0, err
	}
	p := decide(s)
	applyErr := apply(ctx, c, s, &p)
	statusErr := writeStatus(ctx, c, set, &p.status)
	truncateErr := h.truncate(ctx, c, set, s.pods)
	return s.timeUntilAvailable(&p.status), cmp.Or(applyErr, statusErr, truncateErr)
}

// loadState claims the Pods and revisions of a set, and fills its state. It returns nil if there is nothing to decide.
func loadState(ctx context.Context, c *control.Cluster, s *state, defaults func(*appsv1.StatefulSet)) (*history, error) {
	set := s.set
	matches := workload.Selector(set.Spec.Selector)
	if matches == nil {
		return nil, nil
	}
	revisions := workload.Claimant[*appsv1.ControllerRevision]{Owner: set, Kind: gvk, On: gr.StatefulSets, Of: gr.ControllerRevisions,
		Selector: matches}
	all, err := revisions.Claim(ctx, c, workload.Candidates[*appsv1.ControllerRevision](c, gr.ControllerRevisions, set))
	if err != nil {
		return nil, err
	}
	pods := workload.Claimant[*corev1.Pod]{
		Owner: set, Kind: gvk, On: gr.StatefulSets, Of: gr.Pods, Selector: matches,
		Match: func(pod *corev1.Pod) bool { return ordinal(set, pod) >= 0 },
	}
	if s.pods, err = pods.Claim(ctx, c, workload.Candidates[*corev1.Pod](c, gr.Pods, set)); err != nil {
		return nil, err
	}
	h, err := loadHistory(ctx, c, set, all, defaults)
	if err != nil || h.update == nil {
		return nil, err
	}
	s.collisions = h.collisions
	if s.update, err = h.version(set, h.update); err != nil {
		return nil, err
	}
	s.current, err = h.version(set, h.current)
	return h, err
}

// writeStatus stores the status of a set if it has changed.
func writeStatus(ctx context.Context, c *control.Cluster, set *appsv1.StatefulSet, status *appsv1.StatefulSetStatus) error {
	completeUpdate(set, status)
	if apiequality.Semantic.DeepEqual(&set.Status, status) {
		return nil
	}
	next := set.DeepCopy()
	next.Status = *status
	_, err := c.Update(ctx, gr.StatefulSets, next, "status")
	return err
}

// timeUntilAvailable returns the time until the next Pod becomes available.
func (s *state) timeUntilAvailable(status *appsv1.StatefulSetStatus) time.Duration {
	if s.set.Spec.MinReadySeconds <= 0 || status.ReadyReplicas == status.AvailableReplicas {
		return 0
	}
	if next := workload.NextAvailable(s.pods, s.set.Spec.MinReadySeconds, s.now); next > 0 {
		return next
	}
	return time.Duration(s.set.Spec.MinReadySeconds) * time.Second
}
