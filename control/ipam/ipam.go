// Package ipam assigns pod CIDRs to nodes: one of each IP family that the cluster has ranges of. A pod CIDR is claimed in the
// transaction that writes it into the Node, so that two nodes never have the same; the memory of this package only speeds up
// the search for the next free one.
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
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Name is the name of the controller. It is shared with the node lifecycle controller, and so is the service account.
const Name = "node-controller"

const (
	// workers bounds the Nodes that are written concurrently.
	workers = 30
	// maxTries bounds the networks that one reconcile tries when they turn out to be claimed.
	maxTries = 16
	// retryAfter is the time after which a node without a network is reconciled again, if no network is freed before.
	retryAfter = 5 * time.Minute
)

// Controller returns the controller. Without ranges it assigns nothing.
func Controller(ranges []Range) control.Controller {
	p := newPool(ranges)
	return control.Controller{
		Name: Name, Component: "cidrAllocator", For: gr.Nodes, Workers: workers, When: isRelevantChange,
		Triggers: []control.Trigger{
			{On: gr.Nodes, Keys: nodesWithoutNetwork, When: freesNetworks},
			{On: gr.ServiceCIDRs, Keys: nodesWithoutNetwork},
		},
		Writes: []control.Write{{On: gr.Nodes, Do: "update"}},
		Reconcile: func(ctx context.Context, c *control.Cluster, k control.Key) (time.Duration, error) {
			n, found := control.Get[*corev1.Node](c, gr.Nodes, "", k.Name)
			if !found || n.DeletionTimestamp != nil || len(n.Spec.PodCIDRs) > 0 || len(ranges) == 0 {
				p.release(k.Name)
				return 0, nil
			}
			return assign(ctx, c, n, p)
		},
	}
}

// assign writes free networks into a Node.
func assign(ctx context.Context, c *control.Cluster, n *corev1.Node, p *pool) (time.Duration, error) {
	busy := inUse(c, p)
	for try := 1; ; try++ {
		cidrs, full := p.reserve(n.Name, busy)
		if full != nil {
			c.Event(n, corev1.EventTypeNormal, "CIDRNotAvailable", "Node %s status is now: CIDRNotAvailable", n.Name)
			c.Event(n, corev1.EventTypeWarning, "CIDRRangeFull", "%s", exhaustedMessage(full))
			return retryAfter, nil
		}
		next := n.DeepCopy()
		next.Spec.PodCIDRs = texts(cidrs)
		next.Spec.PodCIDR = next.Spec.PodCIDRs[0]
		_, err := c.Update(ctx, gr.Nodes, next, "")
		switch {
		case err == nil:
			return 0, nil
		case apierrors.IsNotFound(err):
			p.release(n.Name)
			return 0, nil
		case apierrors.IsConflict(err):
			return 0, err
		case isClaimConflict(err) && try < maxTries: // the view does not show the other node's network yet
			p.release(n.Name)
		default:
			c.Event(n, corev1.EventTypeNormal, "CIDRAssignmentFailed", "Node %s status is now: CIDRAssignmentFailed", n.Name)
			p.release(n.Name)
			return 0, err
		}
	}
}

// isClaimConflict reports whether a write was rejected because another node has claimed one of the networks.
func isClaimConflict(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsInvalid(err) && status.ErrStatus.Details != nil &&
		slices.ContainsFunc(status.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool {
			return strings.HasPrefix(c.Field, "spec.podCIDRs")
		})
}

// inUse returns a predicate for networks that are used, in whole or in part, by a node or for Services.
func inUse(c *control.Cluster, p *pool) func(netip.Prefix) bool {
	index := byNetwork(p.ranges)
	var others []netip.Prefix
	for s := range control.List[*networkingv1.ServiceCIDR](c, gr.ServiceCIDRs, "") {
		others = append(others, prefixes(s.Spec.CIDRs)...)
	}
	for n := range control.By[*corev1.Node](c, gr.Nodes, index, irregular) {
		others = append(others, prefixes(n.Spec.PodCIDRs)...)
	}
	return func(block netip.Prefix) bool {
		for range c.View(gr.Nodes).By(index, block.String()) {
			return true
		}
		return slices.ContainsFunc(others, block.Overlaps)
	}
}

// irregular is the index value of nodes with a network that is not one of the equal parts of a range.
const irregular = "odd"

// byNetwork indexes nodes by their networks.
func byNetwork(ranges []Range) client.Index {
	return client.Index{Name: "podCIDR", Values: func(o kind.Object) (values []string) {
		n, ok := o.(*corev1.Node)
		if !ok {
			return nil
		}
		for _, p := range prefixes(n.Spec.PodCIDRs) {
			fits := slices.ContainsFunc(ranges, func(r Range) bool { return r.contains(p) && p.Bits() == r.NodeMask })
			if values = append(values, p.String()); !fits {
				values = append(values, irregular)
			}
		}
		return values
	}}
}

// prefixes parses networks, and leaves out invalid ones.
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

// isRelevantChange ignores changes of nodes that do not concern their networks, which are nearly all.
func isRelevantChange(old, now kind.Object) bool {
	if old == nil || now == nil {
		return true
	}
	return len(old.(*corev1.Node).Spec.PodCIDRs) != len(now.(*corev1.Node).Spec.PodCIDRs)
}

// freesNetworks reports whether a node with networks was deleted.
func freesNetworks(old, now kind.Object) bool {
	n, ok := old.(*corev1.Node)
	return ok && now == nil && len(n.Spec.PodCIDRs) > 0
}

// nodesWithoutNetwork yields the nodes without a network.
func nodesWithoutNetwork(c *control.Cluster, _ kind.Object) iter.Seq[control.Key] {
	return func(yield func(control.Key) bool) {
		for n := range control.List[*corev1.Node](c, gr.Nodes, "") {
			if len(n.Spec.PodCIDRs) == 0 && !yield(control.KeyOf(n)) {
				return
			}
		}
	}
}
