package machine

import (
	"context"
	"crypto/tls"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/node/tunnel"
)

// tunnels let the servers of the cluster reach the node where they have no route to it.
func (p *place) tunnels(ctx context.Context) error {
	nodes, err := p.client.View(ctx, gr.Nodes)
	if err != nil {
		return err
	}
	behind, err := p.client.View(ctx, gr.EndpointSlices)
	if err != nil {
		return err
	}
	pod := func(ip netip.Addr) bool { return within(nodes, p.Name, ip) }
	if p.CNIConf != "" { // Pods may have other addresses than the Node says
		pods, err := p.client.Part(ctx, gr.Pods, client.Scope{Node: p.Name})
		if err != nil {
			return err
		}
		pod = func(ip netip.Addr) bool { return within(nodes, p.Name, ip) || podHas(pods, ip) }
	}
	first, err := hostPort(p.servers.url)
	if err != nil {
		return err
	}
	for range nodes.Events(ctx) {
		if len(ownAddresses(nodes, p.Name)) > 0 {
			break
		}
	}
	return p.servers.known.each(ctx, func(ctx context.Context) error {
		return tunnel.New(tunnel.Config{
			Servers: known(ctx, behind, first), TLS: p.servers.tls(), Log: p.log, Pod: pod,
			Own: func() []netip.Addr { return ownAddresses(nodes, p.Name) },
		}).Run(ctx)
	})
}

// servers are the API servers of the cluster: the URL of one, how to speak to all of them as the node, and whom to believe.
type servers struct {
	url   string
	tls   func() *tls.Config
	known *trust
}

// known yields the addresses of the API servers, as the Service "kubernetes" has them, and the one that the agent was told.
func known(ctx context.Context, view client.View, told string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		last := []string{told}
		if !yield(last) {
			return
		}
		for e := range view.Events(ctx) {
			if e.Object != nil && (e.Object.GetNamespace() != metav1.NamespaceDefault || e.Object.GetLabels()[discoveryv1.LabelServiceName] != "kubernetes") {
				continue
			}
			now := []string{told}
			for o := range view.List(metav1.NamespaceDefault) {
				if o.GetLabels()[discoveryv1.LabelServiceName] == "kubernetes" {
					now = append(now, endpoints(o.(*discoveryv1.EndpointSlice))...)
				}
			}
			slices.Sort(now)
			if now = slices.Compact(now); slices.Equal(now, last) {
				continue
			}
			if last = now; !yield(now) {
				return
			}
		}
	}
}

// endpoints are the addresses with ports of a slice.
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

// hostPort is where a URL leads.
func hostPort(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("the address of the server: %w", err)
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

// ownAddresses are those of a node, as its Node tells.
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

// within says that an address is in the networks of the Pods of a node.
func within(nodes client.View, name string, ip netip.Addr) bool {
	o, found := nodes.Get("", name)
	return found && slices.ContainsFunc(o.(*corev1.Node).Spec.PodCIDRs, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(ip)
	})
}

// podHas says that an address is that of one of these Pods.
func podHas(pods client.View, ip netip.Addr) bool {
	for o := range pods.List("") {
		for _, has := range o.(*corev1.Pod).Status.PodIPs {
			if a, err := netip.ParseAddr(has.IP); err == nil && a == ip {
				return true
			}
		}
	}
	return false
}
