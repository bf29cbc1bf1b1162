package validate

import (
	"context"
	"net/netip"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	utilnet "k8s.io/utils/net"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/server/admissionlib"
)

// endpointSliceController is the value of the label managed-by on EndpointSlices that follow from the selector of a
// Service. Their addresses are not checked, so nobody else may use it.
const endpointSliceController = "endpointslice-controller.k8s.io"

// restrictedEndpoints keeps endpoints that somebody writes by hand inside their namespace (CVE-2021-25740). A Service,
// an Ingress or a load balancer sends traffic to whatever address an EndpointSlice or Endpoints has, past the network
// policies that limit who may connect to a Pod. So an address of Pods must belong to a Pod in the same namespace.
// Exempt are users who may create endpoints in the namespace of the Pod as well, or everywhere, such as the controllers
// and administrators.
func restrictedEndpoints(ctx context.Context, a *kind.Admission) error {
	if a.Sub != "" || a.Object == nil {
		return nil
	}
	was := map[netip.Addr]bool{}
	for _, ip := range endpointAddresses(a.Old) {
		was[ip] = true
	}
	added := slices.DeleteFunc(endpointAddresses(a.Object), func(ip netip.Addr) bool { return was[ip] })
	forged := claimsController(a.Object) && !claimsController(a.Old)
	if len(added) == 0 && !forged || mayCreateEndpoints(ctx, a, "") {
		return nil
	}
	if forged {
		return a.Forbidf("the label %s: %s is for the controller of EndpointSlices; leave it out, or name your own controller", discoveryv1.LabelManagedBy, endpointSliceController)
	}
	strange, err := foreignPodAddresses(ctx, a, added)
	if err != nil {
		return err
	}
	for _, ip := range added {
		if namespaces, is := strange[ip]; is && !mayCreateIn(ctx, a, namespaces) {
			return a.Forbidf("%s is an address of Pods, and no Pod of namespace %q has it; endpoints in other namespaces are for those who may create %s there", ip, a.Namespace, a.Def.Plural)
		}
	}
	return nil
}

// mayCreateEndpoints reports whether the user may create endpoints in a namespace; empty stands for all namespaces.
func mayCreateEndpoints(ctx context.Context, a *kind.Admission, namespace string) bool {
	return a.Authorize(ctx, authorizationv1.ResourceAttributes{
		Verb: "create", Namespace: namespace, Group: a.Def.Group, Version: a.Def.Version, Resource: a.Def.Plural,
	}).Allowed
}

// mayCreateIn reports whether the user may create endpoints in all of these namespaces. It is false if there are none.
func mayCreateIn(ctx context.Context, a *kind.Admission, namespaces []string) bool {
	return len(namespaces) > 0 && !slices.ContainsFunc(namespaces, func(n string) bool { return !mayCreateEndpoints(ctx, a, n) })
}

// foreignPodAddresses returns the addresses of a list that belong to Pods, but to none in the namespace of the write,
// with the namespaces of these Pods. An address from the network of a node, which a Pod may get later, counts as well.
func foreignPodAddresses(ctx context.Context, a *kind.Admission, list []netip.Addr) (map[netip.Addr][]string, error) {
	pods, err := a.Server.List(ctx, gr.Pods, "")
	if err != nil {
		return nil, err
	}
	asked, own, out := map[netip.Addr]bool{}, map[netip.Addr]bool{}, map[netip.Addr][]string{}
	for _, ip := range list {
		asked[ip] = true
	}
	for o := range pods {
		p, ok := o.(*corev1.Pod)
		if !ok {
			continue
		}
		for _, ip := range ownAddresses(p) {
			switch {
			case !asked[ip]:
			case p.Namespace == a.Namespace:
				own[ip] = true
			default:
				out[ip] = append(out[ip], p.Namespace)
			}
		}
	}
	nodes, err := admissionlib.List[*corev1.Node](ctx, a.Server, gr.Nodes, "")
	for ip := range asked {
		_, known := out[ip]
		switch {
		case own[ip]:
			delete(out, ip)
		case !known && slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return hasNetwork(n, ip) }):
			out[ip] = nil // no Pod has it yet
		}
	}
	return out, err
}

// ownAddresses returns the addresses that a Pod has for itself and uses: not those of its node, nor those of a Pod that
// has ended.
func ownAddresses(p *corev1.Pod) (out []netip.Addr) {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	for _, has := range p.Status.PodIPs {
		if ip, err := netip.ParseAddr(has.IP); err == nil {
			out = append(out, ip.Unmap())
		}
	}
	return out
}

// hasNetwork reports whether an address is in a network from which a node assigns the addresses of its Pods.
func hasNetwork(n *corev1.Node, ip netip.Addr) bool {
	return slices.ContainsFunc(n.Spec.PodCIDRs, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(ip)
	})
}

func claimsController(o kind.Object) bool {
	s, ok := o.(*discoveryv1.EndpointSlice)
	return ok && s != nil && s.Labels[discoveryv1.LabelManagedBy] == endpointSliceController
}

// endpointAddresses returns the addresses of an EndpointSlice or of Endpoints. They are parsed as sloppily as the API
// does, which accepts leading zeros.
func endpointAddresses(o kind.Object) (out []netip.Addr) {
	add := func(text string) {
		if ip, ok := netip.AddrFromSlice(utilnet.ParseIPSloppy(text)); ok {
			out = append(out, ip.Unmap())
		}
	}
	switch o := o.(type) {
	case *discoveryv1.EndpointSlice:
		for i := range o.Endpoints {
			for _, text := range o.Endpoints[i].Addresses {
				add(text)
			}
		}
	case *corev1.Endpoints:
		for _, s := range o.Subsets {
			for _, a := range slices.Concat(s.Addresses, s.NotReadyAddresses) {
				add(a.IP)
			}
		}
	}
	return out
}
