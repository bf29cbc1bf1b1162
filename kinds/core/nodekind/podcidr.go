package nodekind

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Hooks is the configuration of the server that Nodes depend on.
type Hooks struct {
	// PodRanges are the ranges that the server's allocator divides into pod CIDRs of nodes. They are empty where it
	// does not allocate: administrators may then write any spec.validatePodCIDRs into Nodes, as long as no two networks
	// overlap.
	PodRanges []PodRange
}

// PodRange is a range of Pod addresses, which the allocator divides into networks of equal size, one for each node.
type PodRange struct {
	CIDR netip.Prefix
	// NodeMask is the prefix length of the network of one node.
	NodeMask int
}

// canAllocate reports whether a network is one of those into which the allocator divides the range. Two such networks
// never overlap unless they are equal, so that claims on them keep nodes apart.
func (r PodRange) canAllocate(p netip.Prefix) bool {
	return p.Bits() == r.NodeMask && r.CIDR.Bits() <= p.Bits() && r.CIDR.Contains(p.Addr())
}

var errCIDRTaken = errors.New("provided CIDR is already allocated")

// podCIDRKey returns the key of the claim on a pod CIDR, whose owner is the node. A network has one key, however it
// is written.
func podCIDRKey(p netip.Prefix) string { return "/registry/proa/podcidrs/" + p.String() }

// parsePodCIDR parses a network as the API always has, with leading zeros.
func parsePodCIDR(cidr string) (netip.Prefix, bool) {
	_, network, err := netutils.ParseCIDRSloppy(cidr)
	if err != nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(network.IP)
	bits, _ := network.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), bits), ok
}

// beginNode claims the pod CIDRs of a node, and releases them when it is deleted, in the transaction that writes or
// removes the Node: no two nodes have networks that are equal or overlap. Other nodes install routes to these
// networks, so a network must be one that the allocator could have given, whoever writes it.
func (h Hooks) beginNode(ctx context.Context, tx kind.Txn, n, old *corev1.Node) error {
	var has, had []string
	if n != nil {
		has = n.Spec.PodCIDRs
	}
	if old != nil {
		had = old.Spec.PodCIDRs
	}
	if slices.Equal(has, had) {
		return nil
	}
	claimed, kept := map[netip.Prefix]bool{}, map[netip.Prefix]bool{}
	for _, cidr := range had {
		if p, ok := parsePodCIDR(cidr); ok {
			claimed[p] = true
		}
	}
	for i, cidr := range has {
		p, ok := parsePodCIDR(cidr)
		if ok && !claimed[p] && !kept[p] {
			at := field.NewPath("spec", "podCIDRs").Index(i)
			refuse := func(why string) error {
				return apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, n.Name, field.ErrorList{field.Invalid(at, cidr, why)})
			}
			why, err := h.podCIDRConflict(ctx, tx, n.Name, p)
			switch {
			case err != nil:
				return err
			case why != "":
				return refuse(why)
			}
			tx.Claim(podCIDRKey(p), n.Name, refuse(errCIDRTaken.Error()))
		}
		kept[p] = true
	}
	for p := range claimed {
		if !kept[p] {
			tx.Release(podCIDRKey(p))
		}
	}
	return nil
}

// podCIDRConflict returns why a node must not have a network; empty if it may. It does not compare with equal networks
// of other nodes: the claim does.
func (h Hooks) podCIDRConflict(ctx context.Context, d kind.Server, node string, p netip.Prefix) (string, error) {
	if len(h.PodRanges) > 0 && !slices.ContainsFunc(h.PodRanges, func(r PodRange) bool { return r.canAllocate(p) }) {
		var ranges []string
		for _, r := range h.PodRanges {
			ranges = append(ranges, fmt.Sprintf("a /%d of %s", r.NodeMask, r.CIDR))
		}
		return "must be a network that the server allocates: " + strings.Join(ranges, " or ") +
			"; leave it out to be given one, or start the server with --allocate-node-cidrs=false to allocate by yourself", nil
	}
	services, err := d.List(ctx, gr.ServiceCIDRs, "")
	if err != nil {
		return "", err
	}
	for o := range services {
		s, ok := o.(*networkingv1.ServiceCIDR)
		if !ok {
			continue
		}
		for _, cidr := range s.Spec.CIDRs {
			if other, ok := parsePodCIDR(cidr); ok && other.Overlaps(p) {
				return fmt.Sprintf("overlaps %s, which is for the cluster IPs of Services", other), nil
			}
		}
	}
	nodes, err := d.List(ctx, gr.Nodes, "")
	if err != nil {
		return "", err
	}
	sameSize := fmt.Sprintf("/%d", p.Bits()) // networks of the same size are equal or disjoint
	for o := range nodes {
		n, ok := o.(*corev1.Node)
		if !ok || n.Name == node {
			continue
		}
		for _, cidr := range n.Spec.PodCIDRs {
			if strings.HasSuffix(cidr, sameSize) || strings.Contains(cidr, ":") != p.Addr().Is6() {
				continue
			}
			if other, ok := parsePodCIDR(cidr); ok && other.Overlaps(p) {
				return fmt.Sprintf("overlaps %s, the network of node %q", other, n.Name), nil
			}
		}
	}
	return "", nil
}
