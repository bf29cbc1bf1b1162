package mutate

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/nodeaddress"
)

// NodeFacts returns what the server knows at the moment about the cluster's addresses, against which the addresses that
// nodes claim are checked. It may be nil.
type NodeFacts func() nodeaddress.Cluster

// restrictAddresses rejects addresses that a node claims for itself without proof.
func restrictAddresses(ctx context.Context, a *kind.Admission, facts NodeFacts) error {
	n, ok := a.Object.(*corev1.Node)
	if !ok {
		return nil
	}
	var cluster nodeaddress.Cluster
	if facts != nil {
		cluster = facts()
	}
	claim := &nodeaddress.Claim{Node: n, Remote: a.Remote}
	if n.Name != a.Name {
		claim.Node = n.DeepCopy()
		claim.Node.Name = a.Name
	}
	claim.Stored, _ = a.Old.(*corev1.Node)
	if claim.IsNew() {
		nodes, err := readClusterAddresses(ctx, a, &cluster)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		claim.Others = slices.Values(nodes)
	}
	if refusal := nodeaddress.Check(&cluster, claim); refusal != nil {
		return refuseAddress(a, refusal)
	}
	return nil
}

// readClusterAddresses adds what the objects of the cluster say about addresses: further ranges of Services, and the
// addresses of API servers. It returns all Nodes. It is called only when a node claims something new.
func readClusterAddresses(ctx context.Context, a *kind.Admission, cluster *nodeaddress.Cluster) ([]*corev1.Node, error) {
	nodes, err := list[*corev1.Node](ctx, a, "", "nodes", "")
	if err != nil {
		return nil, err
	}
	ranges, err := list[*networkingv1.ServiceCIDR](ctx, a, networkingv1.GroupName, "servicecidrs", "")
	if err != nil {
		return nil, err
	}
	cluster.Services = slices.Clone(cluster.Services)
	for _, r := range ranges {
		for _, text := range r.Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				cluster.Services = append(cluster.Services, p)
			}
		}
	}
	servers, err := list[*discoveryv1.EndpointSlice](ctx, a, discoveryv1.GroupName, "endpointslices", metav1.NamespaceDefault)
	if err != nil {
		return nil, err
	}
	cluster.Servers = slices.Clone(cluster.Servers)
	for _, slice := range servers {
		if slice.Labels[discoveryv1.LabelServiceName] != "kubernetes" {
			continue
		}
		for _, e := range slice.Endpoints {
			for _, text := range e.Addresses {
				if ip, err := netip.ParseAddr(text); err == nil {
					cluster.Servers = append(cluster.Servers, ip.Unmap())
				}
			}
		}
	}
	return nodes, nil
}

// refuseAddress returns the response to a rejected claim: 403, with the field as its cause, so that agents can tell it
// from other rejections.
func refuseAddress(a *kind.Admission, refusal *nodeaddress.Refusal) error {
	return withCause(a.Forbidf("node %q is not allowed to have the %w", a.Name, refusal), refusal)
}

// restrictPodAddresses rejects addresses that a node reports for one of its pods, but that belong to somebody else:
// Services and proxies send traffic to whatever address a pod has.
func restrictPodAddresses(ctx context.Context, a *kind.Admission, facts NodeFacts) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	claim := &nodeaddress.PodClaim{Pod: pod}
	claim.Stored, _ = a.Old.(*corev1.Pod)
	if !claim.IsNew() {
		return nil
	}
	var cluster nodeaddress.Cluster
	if facts != nil {
		cluster = facts()
	}
	nodes, err := readClusterAddresses(ctx, a, &cluster)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	claim.Nodes = slices.Values(nodes)
	refusal := nodeaddress.CheckPod(&cluster, claim)
	if refusal == nil {
		return nil
	}
	return withCause(a.Forbidf("node %q cannot report the %w", pod.Spec.NodeName, refusal), refusal)
}

// withCause adds the field of a rejection to an error as its cause.
func withCause(err error, refusal *nodeaddress.Refusal) error {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: metav1.CauseTypeForbidden, Message: refusal.Reason, Field: refusal.Field,
		})
	}
	return err
}
