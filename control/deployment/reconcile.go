package deployment

import (
	"context"
	"fmt"
	"reflect"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/control"
	"proa.dev/control/lib/workload"
	"proa.dev/kinds/lib/gr"
)

func reconcile(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	d, found := control.Get[*appsv1.Deployment](c, gr.Deployments, k.Namespace, k.Name)
	if !found {
		return 0, nil
	}
	if reflect.DeepEqual(d.Spec.Selector, &metav1.LabelSelector{}) {
		c.Event(d, corev1.EventTypeWarning, "SelectingAll", "This deployment is selecting all pods. A non-empty selector is required.")
		return 0, writeObservedGeneration(ctx, c, d)
	}
	selector := workload.Selector(d.Spec.Selector)
	if selector == nil {
		return 0, fmt.Errorf("deployment %s/%s has invalid label selector", d.Namespace, d.Name)
	}
	claimant := workload.Claimant[*appsv1.ReplicaSet]{Owner: d, Kind: gvk(), On: gr.Deployments, Of: gr.ReplicaSets, Selector: selector}
	sets, err := claimant.Claim(ctx, c, workload.Candidates[*appsv1.ReplicaSet](c, gr.ReplicaSets, d))
	if err != nil {
		return 0, err
	}
	p, err := decide(d, sets, setsWithPods(c, d, sets), time.Now())
	if err != nil {
		return 0, err
	}
	return p.again, apply(ctx, c, d, &p)
}

// writeObservedGeneration writes the observed generation of a Deployment that is not handled otherwise.
func writeObservedGeneration(ctx context.Context, c *control.Cluster, d *appsv1.Deployment) error {
	if d.Status.ObservedGeneration >= d.Generation {
		return nil
	}
	next := d.DeepCopy()
	next.Status.ObservedGeneration = d.Generation
	_, err := c.Update(ctx, gr.Deployments, next, "status")
	return err
}

// setsWithPods returns the sets whose Pods have not all ended, for the strategy Recreate.
func setsWithPods(c *control.Cluster, d *appsv1.Deployment, sets []*appsv1.ReplicaSet) map[types.UID]bool {
	if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		return nil
	}
	out := map[types.UID]bool{}
	for _, rs := range sets {
		for p := range control.Owned[*corev1.Pod](c, gr.Pods, rs) {
			out[rs.UID] = out[rs.UID] || !workload.IsTerminal(p)
		}
	}
	return out
}

// apply makes the writes of a plan, and records the Events.
func apply(ctx context.Context, c *control.Cluster, d *appsv1.Deployment, p *plan) error {
	tell := func(set string) {
		for _, e := range p.events[set] {
			c.Event(d, e.kind, e.reason, "%s", e.message)
		}
	}
	if p.rollback != nil {
		if _, err := c.Update(ctx, gr.Deployments, p.rollback, ""); err != nil {
			return err
		}
		tell("")
		return nil
	}
	if p.create != nil {
		name := p.create.Name
		if made, err := create(ctx, c, d, p.create); err != nil || !made {
			return err
		}
		tell(name)
	}
	for _, rs := range p.update {
		name := rs.Name
		if _, err := c.Update(ctx, gr.ReplicaSets, rs, ""); err != nil {
			return err
		}
		tell(name)
	}
	for _, rs := range p.remove {
		// A set that has changed meanwhile may be needed again, so the resourceVersion is a precondition.
		uid, version := rs.UID, rs.ResourceVersion
		err := c.Delete(ctx, gr.ReplicaSets, rs.Namespace, rs.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if p.status != nil {
		_, err := c.Update(ctx, gr.Deployments, p.status, "status")
		return err
	}
	return nil
}

// create creates the set of a new template, and reports whether the rest of the plan can be carried out. If its name is taken
// by a set with another template or owner, it increases the collision count, so that the next attempt has another name.
func create(ctx context.Context, c *control.Cluster, d *appsv1.Deployment, rs *appsv1.ReplicaSet) (made bool, err error) {
	namespace, name := rs.Namespace, rs.Name
	_, err = c.Create(ctx, gr.ReplicaSets, rs)
	switch {
	case err == nil:
		return true, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return false, nil // nothing can be created there any more
	case apierrors.IsAlreadyExists(err):
		taken, getErr := c.Get(ctx, gr.ReplicaSets, namespace, name, "")
		if getErr != nil {
			return false, getErr
		}
		if other := taken.(*appsv1.ReplicaSet); metav1.IsControlledBy(other, d) && sameTemplate(&other.Spec.Template, &d.Spec.Template) {
			return false, err // an earlier attempt has created it, and the view does not show it yet
		}
		_, err = c.Update(ctx, gr.Deployments, withCollision(d), "status")
		return false, err
	}
	message := fmt.Sprintf("Failed to create new replica set %q: %v", name, err)
	c.Event(d, corev1.EventTypeWarning, reasonFailed, "%s", message)
	if hasDeadline(d) {
		// An error of this write is ignored: the one above is returned.
		_, _ = c.Update(ctx, gr.Deployments, withCreateError(d, message, time.Now()), "status")
	}
	return false, err
}
