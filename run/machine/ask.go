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
	"proa.dev/node/netns"
	"proa.dev/run"
)

// NodeFailure says what does not work on a node of this machine.
type NodeFailure struct{ Node, Part, Error string }

// AskNodes asks on each node of a data folder, in the network of that node, what its Pods ask: the cluster's DNS for the API server, and the
// API server at the address of its Service. The nodes are not asked how they are: what answers, works. It needs root.
func AskNodes(ctx context.Context, dataDir string, c *run.Config, trust *tls.Config) (out []NodeFailure) {
	for _, f := range nodesHere(dataDir, c) {
		ask := func(part string, do func() error) {
			in := do
			if f.number > 1 {
				in = func() error { return netns.Do(f.netns(), do) }
			}
			if err := in(); err != nil {
				out = append(out, NodeFailure{f.name, part, err.Error()})
			}
		}
		for _, server := range namesOf(f.dir) {
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

// nodesHere are the nodes of this machine that run containers, the first one included.
func nodesHere(dataDir string, c *run.Config) []further {
	if c.Node.Name == "" {
		return nil
	}
	return append([]further{{c.Node.Name, 1, dataDir}}, wanted(c)...)
}

// namesOf are the addresses at which a node answers names, as it has noted them.
func namesOf(dataDir string) (out []netip.Addr) {
	text, err := os.ReadFile(namesFile(dataDir))
	if err != nil {
		return nil // then it does not answer yet, and its Node says so
	}
	for word := range strings.FieldsSeq(string(text)) {
		if ip, err := netip.ParseAddr(word); err == nil {
			out = append(out, ip)
		}
	}
	return out
}

// reachAPI connects to the API server at the address of its Service.
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
		return errors.Join(fmt.Errorf("whoever answers at the Service of the API server, %s, is not the API server", to), err)
	}
	return nil
}
