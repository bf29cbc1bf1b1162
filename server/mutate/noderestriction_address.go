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
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/nodeaddress"
)

// NodeFacts returns what the addresses that nodes claim are checked against, as the server knows it now; nil for nothing.
type NodeFacts func() nodeaddress.Cluster

// nodesAddresses refuses addresses that a node claims for itself, but that only the node says it has.
func nodesAddresses(ctx context.Context, a *kind.Admission, facts NodeFacts) error {
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
		nodes, err := lookAround(ctx, a, &cluster)
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

// lookAround adds what the objects of the cluster say: further ranges of Services, and where API servers are. It returns all Nodes,
// and is asked only when a node claims something new.
func lookAround(ctx context.Context, a *kind.Admission, cluster *nodeaddress.Cluster) ([]*corev1.Node, error) {
	nodes, err := all[*corev1.Node](ctx, a, "", "nodes", "")
	if err != nil {
		return nil, err
	}
	ranges, err := all[*networkingv1.ServiceCIDR](ctx, a, networkingv1.GroupName, "servicecidrs", "")
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
	servers, err := a.Door.Get(ctx, schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}, metav1.NamespaceDefault, "kubernetes")
	if apierrors.IsNotFound(err) {
		return nodes, nil
	}
	if err != nil {
		return nil, err
	}
	cluster.Servers = slices.Clone(cluster.Servers)
	if slice, ok := servers.(*discoveryv1.EndpointSlice); ok {
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

// refuseAddress is the answer to a claim: 403, with the field as its cause, so that agents can tell it from other refusals.
func refuseAddress(a *kind.Admission, refusal *nodeaddress.Refusal) error {
	return withCause(a.Forbidf("node %q is not allowed to have the %w", a.Name, refusal), refusal)
}

// nodesPodAddresses refuses addresses that a node reports of one of its pods, but that are somebody else's: Services and proxies lead
// traffic to whatever address a pod has.
func nodesPodAddresses(ctx context.Context, a *kind.Admission, facts NodeFacts) error {
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
	nodes, err := lookAround(ctx, a, &cluster)
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

// withCause names the field of a refusal as the cause of an error.
func withCause(err error, refusal *nodeaddress.Refusal) error {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: metav1.CauseTypeForbidden, Message: refusal.Reason, Field: refusal.Field,
		})
	}
	return err
}
