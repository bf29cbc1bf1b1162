package machine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"proa.dev/network/dns"
	"proa.dev/network/nodebridge"
	netpod "proa.dev/network/podnetwork"
	"proa.dev/node/netns"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/settings"
)

// NodeFailure says what does not work on a node of this machine.
type NodeFailure struct{ Node, Part, Error string }

// AskNodes tries, in the network of each node of a data folder, what its Pods do: it looks up the API server in the
// cluster's DNS, and connects to it at the address of its Service. It also checks that packets to Pods and to the other nodes take the
// bridges of this cluster. It needs root.
func AskNodes(ctx context.Context, dataDir string, c *settings.Config, trust *tls.Config) (out []NodeFailure) {
	for _, f := range nodefolder.OfConfig(c) {
		ask := func(part string, do func() error) {
			in := do
			if f.Number > 1 {
				in = func() error { return netns.Do(f.NetNS(), do) }
			}
			if err := in(); err != nil {
				out = append(out, NodeFailure{f.Name, part, err.Error()})
			}
		}
		if c.Node.CNIConf == "" {
			ask("Pod network", func() error { return checkPodNetworkOf(f.Dir) })
		}
		if f.Number == 1 && c.Nodes > 1 {
			ask("network between the nodes", func() error { return nodebridge.Check(nodefolder.NodeBridge(dataDir)) })
		}
		for _, server := range dnsAddressesOf(f.Dir) {
			ask("DNS", func() error {
				if err := dns.Ask(ctx, server, "kubernetes.default.svc."+c.Node.ClusterDomain); err != nil {
					return fmt.Errorf("the cluster's DNS at %s does not answer: %w", server, err)
				}
				return nil
			})
		}
		if !c.Node.NoProxy && len(c.ServiceCIDRs) > 0 {
			ask("Services", func() error {
				return reachAPI(ctx, netip.AddrPortFrom(c.ServiceCIDRs[0].Masked().Addr().Next(), 443), trust)
			})
		}
	}
	return out
}

// checkPodNetworkOf returns an error if packets to the Pods of a node do not reach their bridge, or if another interface is in the
// same network.
func checkPodNetworkOf(dataDir string) error {
	config := nodefolder.PodNetwork(dataDir, "", nil)
	config.Tunnel = nodefolder.Tunnel(dataDir)
	if !config.HasRun() {
		return nil // the Pod network has not started yet, and the Node reports that
	}
	if err := netpod.Check(config); err != nil {
		return err
	}
	return netpod.CheckOverlap(config)
}

// dnsAddressesOf returns the addresses at which a node answers DNS queries, as the node has stored them.
func dnsAddressesOf(dataDir string) (out []netip.Addr) {
	text, err := os.ReadFile(nodefolder.DNSAddressFile(dataDir))
	if err != nil {
		return nil // the DNS server has not started yet, and the Node reports that
	}
	for word := range strings.FieldsSeq(string(text)) {
		if ip, err := netip.ParseAddr(word); err == nil {
			out = append(out, ip)
		}
	}
	return out
}

// reachAPI connects to the API server at the address of its Service, and checks its certificate.
func reachAPI(ctx context.Context, to netip.AddrPort, trust *tls.Config) error {
	ctx, stop := context.WithTimeout(ctx, 3*time.Second)
	defer stop()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return fmt.Errorf("the Service of the API server does not answer: %w", err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	config := trust.Clone()
	config.ServerName = to.Addr().String()
	if err := tls.Client(conn, config).Handshake(); err != nil {
		return errors.Join(fmt.Errorf("the program that answers at the Service of the API server, %s, is not the API server", to), err)
	}
	return nil
}
