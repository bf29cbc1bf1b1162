// Package servicecidr sets the condition Ready of ServiceCIDRs, and delays the deletion of one while Services have addresses
// that are in no other.
package servicecidr

import (
	"context"
	"iter"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Controller returns the controller.
func Controller() control.Controller {
	return control.Controller{
		Name: "service-cidrs-controller", Component: "service-cidr-controller", For: gr.ServiceCIDRs,
		Triggers: []control.Trigger{
			{On: gr.ServiceCIDRs, Keys: overlapping},
			{On: gr.IPAddresses, Keys: containing, When: func(old, now kind.Object) bool { return old == nil || now == nil }},
		},
		Writes: []control.Write{{On: gr.ServiceCIDRs, Do: "update update/status"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			r, found := control.Get[*networkingv1.ServiceCIDR](c, gr.ServiceCIDRs, "", k.Name)
			if !found {
				return 0, nil
			}
			p := decide(r, slices.Collect(control.List[*networkingv1.ServiceCIDR](c, gr.ServiceCIDRs, "")),
				func() []*networkingv1.IPAddress {
					return slices.Collect(control.List[*networkingv1.IPAddress](c, gr.IPAddresses, ""))
				}, time.Now())
			return p.again, apply(ctx, c, r, p)
		},
	}
}

func apply(ctx context.Context, c *control.Cluster, r *networkingv1.ServiceCIDR, p plan) error {
	next := r.DeepCopy()
	if p.finalizers != nil {
		next.Finalizers = *p.finalizers
		o, err := c.Update(ctx, gr.ServiceCIDRs, next, "")
		if err != nil {
			return control.IgnoreNotFound(err)
		}
		if o == nil || o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
			return nil
		}
		next = o.(*networkingv1.ServiceCIDR).DeepCopy()
	}
	if p.conditions == nil {
		return nil
	}
	next.Status.Conditions = p.conditions
	_, err := c.Update(ctx, gr.ServiceCIDRs, next, "status")
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && r.DeletionTimestamp == nil {
		c.Event(r, corev1.EventTypeWarning, "KubernetesServiceCIDRError", "The ServiceCIDR Status can not be set to Ready=True")
	}
	return control.IgnoreNotFound(err)
}

// overlapping yields the ranges that overlap with one.
func overlapping(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		own := prefixes(o.(*networkingv1.ServiceCIDR))
		for r := range control.List[*networkingv1.ServiceCIDR](c, gr.ServiceCIDRs, "") {
			shares := slices.ContainsFunc(prefixes(r), func(p netip.Prefix) bool { return slices.ContainsFunc(own, p.Overlaps) })
			if shares && !yield(control.KeyOf(r)) {
				return
			}
		}
	}
}

// containing yields the ranges that contain an address.
func containing(c *control.Cluster, o kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		ip, ok := allocated(o.(*networkingv1.IPAddress))
		if !ok {
			return
		}
		for r := range control.List[*networkingv1.ServiceCIDR](c, gr.ServiceCIDRs, "") {
			if contains(r, ip) && !yield(control.KeyOf(r)) {
				return
			}
		}
	}
}
