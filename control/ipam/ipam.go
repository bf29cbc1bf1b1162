// Package ipam gives every node the networks that its Pods get their addresses from: one of each IP family that the cluster
// has ranges of. A pod CIDR is claimed in the transaction that writes it into the Node, so two nodes can never have the same,
// and what is remembered here is only where to look next.
package ipam

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Name is the controller's. It shares its name, and so its identity, with the one that watches the health of nodes.
const Name = "node-controller"

const (
	// workers write Nodes at the same time.
	workers = 30
	// tries is how many networks a look tries when each turns out to be claimed.
	tries = 16
	// patience is how long a node without a network waits when nothing happens that could free one.
	patience = 5 * time.Minute
)

// Controller returns the loop. Without ranges it has nothing to give and only looks.
func Controller(ranges []Range) control.Controller {
	p := newPool(ranges)
	return control.Controller{
		Name: Name, Component: "cidrAllocator", For: gr.Nodes, Workers: workers, When: matters,
		Triggers: []control.Trigger{
			{On: gr.Nodes, Keys: waiting, When: freed},
			{On: gr.ServiceCIDRs, Keys: waiting},
		},
		Writes: []control.Write{{On: gr.Nodes, Do: "update"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			n, found := control.Get[*corev1.Node](c, gr.Nodes, "", k.Name)
			if !found || n.DeletionTimestamp != nil || len(n.Spec.PodCIDRs) > 0 || len(ranges) == 0 {
				p.forget(k.Name)
				return 0, nil
			}
			return assign(ctx, c, n, p)
		},
	}
}

// assign gives a node its networks.
func assign(ctx context.Context, c *control.Cluster, n *corev1.Node, p *pool) (time.Duration, error) {
	busy := occupied(c, p)
	for try := 1; ; try++ {
		cidrs, full := p.take(n.Name, busy)
		if full != nil {
			c.Event(n, corev1.EventTypeNormal, "CIDRNotAvailable", "Node %s status is now: CIDRNotAvailable", n.Name)
			c.Event(n, corev1.EventTypeWarning, "CIDRRangeFull", "%s", exhausted(full))
			return patience, nil
		}
		next := n.DeepCopy()
		next.Spec.PodCIDRs = texts(cidrs)
		next.Spec.PodCIDR = next.Spec.PodCIDRs[0]
		_, err := c.Update(ctx, gr.Nodes, next, "")
		switch {
		case err == nil:
			return 0, nil
		case apierrors.IsNotFound(err):
			p.forget(n.Name)
			return 0, nil
		case apierrors.IsConflict(err):
			return 0, err
		case claimed(err) && try < tries: // the view does not show yet who has it
			p.forget(n.Name)
		default:
			c.Event(n, corev1.EventTypeNormal, "CIDRAssignmentFailed", "Node %s status is now: CIDRAssignmentFailed", n.Name)
			p.forget(n.Name)
			return 0, err
		}
	}
}

// claimed says that a write was refused because another node has one of the networks.
func claimed(err error) bool {
	refused, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsInvalid(err) && refused.ErrStatus.Details != nil &&
		slices.ContainsFunc(refused.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool {
			return strings.HasPrefix(c.Field, "spec.podCIDRs")
		})
}

// occupied says of a network whether it is used in whole or in part: by a node, or for Services.
func occupied(c *control.Cluster, p *pool) func(netip.Prefix) bool {
	index := byNetwork(p.ranges)
	var others []netip.Prefix
	for s := range control.List[*networkingv1.ServiceCIDR](c, gr.ServiceCIDRs, "") {
		others = append(others, prefixes(s.Spec.CIDRs)...)
	}
	for n := range control.By[*corev1.Node](c, gr.Nodes, index, odd) {
		others = append(others, prefixes(n.Spec.PodCIDRs)...)
	}
	return func(block netip.Prefix) bool {
		for range c.View(gr.Nodes).By(index, block.String()) {
			return true
		}
		return slices.ContainsFunc(others, block.Overlaps)
	}
}

// odd is the value in the index of nodes with a network that is not one of the equal parts of a range.
const odd = "odd"

// byNetwork finds nodes by the networks they have.
func byNetwork(ranges []Range) client.Index {
	return client.Index{Name: "podCIDR", Of: func(o kind.Object) (values []string) {
		n, ok := o.(*corev1.Node)
		if !ok {
			return nil
		}
		for _, p := range prefixes(n.Spec.PodCIDRs) {
			fits := slices.ContainsFunc(ranges, func(r Range) bool { return r.holds(p) && p.Bits() == r.NodeMask })
			if values = append(values, p.String()); !fits {
				values = append(values, odd)
			}
		}
		return values
	}}
}

// prefixes are the networks of a list, without what is none.
func prefixes(cidrs []string) (out []netip.Prefix) {
	for _, text := range cidrs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

func texts(list []netip.Prefix) (out []string) {
	for _, p := range list {
		out = append(out, p.String())
	}
	return out
}

// matters leaves out the changes of nodes that are not about their networks, which are nearly all.
func matters(old, now kind.Object) bool {
	if old == nil || now == nil {
		return true
	}
	return len(old.(*corev1.Node).Spec.PodCIDRs) != len(now.(*corev1.Node).Spec.PodCIDRs)
}

// freed says that a node with networks has gone.
func freed(old, now kind.Object) bool {
	n, ok := old.(*corev1.Node)
	return ok && now == nil && len(n.Spec.PodCIDRs) > 0
}

// waiting are the nodes without a network.
func waiting(c *control.Cluster, _ kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for n := range control.List[*corev1.Node](c, gr.Nodes, "") {
			if len(n.Spec.PodCIDRs) == 0 && !yield(control.KeyOf(n)) {
				return
			}
		}
	}
}
