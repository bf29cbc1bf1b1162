package resourceclaim

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
)

// reconcilePod reconciles a Pod: it creates the claims that it requests by template.
func reconcilePod(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
	p, found := control.Get[*corev1.Pod](c, gr.Pods, k.Namespace, k.Name)
	if !found || p.DeletionTimestamp != nil || hasEnded(p) || len(p.Spec.ResourceClaims) == 0 {
		return 0, nil
	}
	w, err := newWorld(ctx, c, p)
	if err != nil {
		return 0, err
	}
	wants, request, failed := missingClaims(p, w)
	made := map[string]string{}
	for _, want := range wants {
		if want.make == nil {
			made[want.request] = want.have
			continue
		}
		o, err := c.Create(ctx, gr.ResourceClaims, want.make)
		if err != nil {
			request, failed = want.request, fmt.Errorf("create ResourceClaim : %w", err)
			break
		}
		made[want.request] = o.GetName()
	}
	if len(made) > 0 {
		next := p.DeepCopy()
		next.Status.ResourceClaimStatuses = withClaimStatuses(p, made)
		o, err := c.Update(ctx, gr.Pods, next, "status")
		if err != nil {
			return 0, control.IgnoreNotFound(fmt.Errorf("update pod %s/%s ResourceClaimStatuses: %w", p.Namespace, p.Name, err))
		}
		p = o.(*corev1.Pod)
	}
	if apierrors.HasStatusCause(failed, corev1.NamespaceTerminatingCause) {
		return 0, nil // the Pod will be deleted, too
	}
	if failed != nil {
		c.Event(p, corev1.EventTypeWarning, "FailedResourceClaimCreation", "PodResourceClaim %s: %v", request, failed)
		return 0, fmt.Errorf("pod %s/%s, PodResourceClaim %s: %w", p.Namespace, p.Name, request, failed)
	}
	return 0, reserve(ctx, c, p, w)
}

// newWorld returns the claims and templates that a Pod can use. It asks the server about claims in the Pod's status that the view
// does not have.
func newWorld(ctx context.Context, c *control.Cluster, p *corev1.Pod) (world, error) {
	w := world{
		owned: slices.Collect(control.Owned[*resourcev1.ResourceClaim](c, gr.ResourceClaims, p)),
		template: func(name string) *resourcev1.ResourceClaimTemplate {
			t, _ := control.Get[*resourcev1.ResourceClaimTemplate](c, gr.ResourceClaimTemplates, p.Namespace, name)
			return t
		},
	}
	claims := map[string]*resourcev1.ResourceClaim{}
	for _, name := range claimNames(p) {
		claim, found := control.Get[*resourcev1.ResourceClaim](c, gr.ResourceClaims, p.Namespace, name)
		if !found {
			o, err := c.Get(ctx, gr.ResourceClaims, p.Namespace, name, "")
			if err != nil && !apierrors.IsNotFound(err) {
				return w, fmt.Errorf("checking claim existence: %w", err)
			}
			claim, _ = o.(*resourcev1.ResourceClaim)
		}
		if claim != nil {
			claims[name] = claim
		}
	}
	w.claim = func(name string) *resourcev1.ResourceClaim { return claims[name] }
	return w, nil
}

// reserve adds a Pod to the reservations of the claims it uses.
func reserve(ctx context.Context, c *control.Cluster, p *corev1.Pod, w world) error {
	claims, err := unreservedClaims(p, w)
	for _, claim := range claims {
		next := claim.DeepCopy()
		next.Status.ReservedFor = append(next.Status.ReservedFor,
			resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
		if _, err := c.Update(ctx, gr.ResourceClaims, next, "status"); err != nil {
			return fmt.Errorf("reserve claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
	}
	return err
}
