package machine

import (
	"context"
	"crypto/tls"
	"iter"
	"net"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/tunnel"
	"proa.dev/run/machine/agentjoin"
)

// tunnels opens tunnels to the API servers, by which they reach the node where they have no route to it.
func (p *agentHost) tunnels(ctx context.Context) error {
	nodes, err := p.client.View(ctx, gr.Nodes)
	if err != nil {
		return err
	}
	behind, err := p.client.View(ctx, gr.EndpointSlices)
	if err != nil {
		return err
	}
	pod := func(ip netip.Addr) bool { return isPodAddress(nodes, p.Name, ip) }
	if p.CNIConf != "" { // Pods may have other addresses than the Node says
		pods, err := p.client.Part(ctx, gr.Pods, client.Scope{Node: p.Name})
		if err != nil {
			return err
		}
		pod = func(ip netip.Addr) bool { return isPodAddress(nodes, p.Name, ip) || isAddressOfPod(pods, ip) }
	}
	first, err := agentjoin.HostPort(p.servers.url)
	if err != nil {
		return err
	}
	told := []string{first}
	if a, err := netip.ParseAddrPort(first); err == nil && a.Addr().IsLoopback() {
		told = nil // it is on this machine, and listed under the address that it has for others
	}
	for range nodes.Events(ctx) {
		if len(ownAddresses(nodes, p.Name)) > 0 {
			break
		}
	}
	return p.servers.known.RunUntilChanged(ctx, func(ctx context.Context) error {
		return tunnel.New(tunnel.Config{
			Servers: watchServers(ctx, behind, told), TLS: p.servers.tls(), Log: p.log, IsPodIP: pod,
			NodeIPs: func() []netip.Addr { return ownAddresses(nodes, p.Name) },
		}).Run(ctx)
	})
}

// servers are the API servers of the cluster: the URL of one, the TLS configuration for all of them, and the trusted
// authorities.
type servers struct {
	url   string
	tls   func() *tls.Config
	known *agentjoin.Trust
}

// watchServers yields the addresses of the API servers whenever they change: those of the Service "kubernetes", and the one
// that the agent was given.
func watchServers(ctx context.Context, view client.View, told []string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		last := told
		if !yield(last) {
			return
		}
		for e := range view.Events(ctx) {
			if e.Object != nil && (e.Object.GetNamespace() != metav1.NamespaceDefault ||
				e.Object.GetLabels()[discoveryv1.LabelServiceName] != "kubernetes") {
				continue
			}
			now := slices.Clone(told)
			for o := range view.List(metav1.NamespaceDefault) {
				if o.GetLabels()[discoveryv1.LabelServiceName] == "kubernetes" {
					now = append(now, endpoints(o.(*discoveryv1.EndpointSlice))...)
				}
			}
			slices.Sort(now)
			now = slices.Compact(now)
			if now = now[:min(len(now), maxServers)]; slices.Equal(now, last) {
				continue
			}
			if last = now; !yield(now) {
				return
			}
		}
	}
}

// endpoints returns the addresses with ports of an EndpointSlice.
func endpoints(s *discoveryv1.EndpointSlice) (out []string) {
	for _, port := range s.Ports {
		for _, e := range s.Endpoints {
			for _, a := range e.Addresses {
				if port.Port != nil {
					out = append(out, net.JoinHostPort(a, strconv.Itoa(int(*port.Port))))
				}
			}
		}
	}
	return out
}

// ownAddresses returns the addresses in the status of a Node.
func ownAddresses(nodes client.View, name string) (out []netip.Addr) {
	o, found := nodes.Get("", name)
	if !found {
		return nil
	}
	for _, a := range o.(*corev1.Node).Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && (a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP) {
			out = append(out, ip)
		}
	}
	return out
}

// isPodAddress tells whether an address is in the networks of the Pods of a node.
func isPodAddress(nodes client.View, name string, ip netip.Addr) bool {
	o, found := nodes.Get("", name)
	return found && slices.ContainsFunc(o.(*corev1.Node).Spec.PodCIDRs, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(ip)
	})
}

// isAddressOfPod tells whether an address is that of one of these Pods.
func isAddressOfPod(pods client.View, ip netip.Addr) bool {
	for o := range pods.List("") {
		for _, has := range o.(*corev1.Pod).Status.PodIPs {
			if a, err := netip.ParseAddr(has.IP); err == nil && a == ip {
				return true
			}
		}
	}
	return false
}
