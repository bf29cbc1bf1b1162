package machine

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"proa.dev/network/nodebridge"
	"proa.dev/run/machine/agentjoin"
	"proa.dev/run/machine/nodefolder"
)

// openBridge creates the bridge that several nodes of this machine share. The first node, and the server, have an address
// on it.
func (s *Machine) openBridge() error {
	if s.Nodes < 2 {
		return nil
	}
	if s.Node.Name == "" {
		return fmt.Errorf("nodes: %d nodes need a name for the first one; say it with --node NAME", s.Nodes)
	}
	if os.Geteuid() != 0 {
		return errors.New("nodes: several nodes need root: they live in network namespaces")
	}
	if err := makeNodesDir(s.DataDir); err != nil {
		return fmt.Errorf("make the folder of the nodes: %w", err)
	}
	// All nodes run the same programs, which a release unpacks once.
	var err error
	if s.Node.BinDir, err = nodefolder.BinDir(&s.Node, s.DataDir); err != nil {
		return err
	}
	c := nodefolder.NodeBridge(s.DataDir)
	c.Pods = s.ClusterCIDRs()
	if c.Networks, err = bridgeNetworks(s.DataDir, s.ServiceCIDRs, c.Pods); err != nil {
		return err
	}
	if err := nodebridge.Ensure(c); err != nil {
		return err
	}
	s.bridge, s.Node.IPs = &c, c.Addresses(1)
	return nil
}

// bridgeOf returns the bridge on which the node of an agent has its address; nil if that is on no bridge of this machine's nodes, or if
// the node is not the first.
func bridgeOf(c *agentjoin.Agent) *nodebridge.Config {
	text, err := os.ReadFile(nodefolder.BridgeFile(c.DataDir))
	if err != nil || !c.BesideServer {
		return nil
	}
	for word := range strings.FieldsSeq(string(text)) {
		if p, err := netip.ParsePrefix(word); err == nil && slices.ContainsFunc(c.Node.IPs, p.Contains) {
			return new(nodefolder.NodeBridge(c.DataDir))
		}
	}
	return nil
}

// makeNodesDir creates the folder of the further nodes. Processes of Pods in user namespaces pass through it, whatever
// the umask is.
func makeNodesDir(dataDir string) error {
	if err := os.MkdirAll(nodefolder.NodesDir(dataDir), 0o700); err != nil {
		return err
	}
	return os.Chmod(nodefolder.NodesDir(dataDir), 0o711) //nolint:gosec // G302: see above
}

// bridgeNetworks returns the networks of the bridge, one for each IP family of the Services: the stored ones, or new ones
// that collide with nothing on this machine.
func bridgeNetworks(dataDir string, services, pods []netip.Prefix) (out []netip.Prefix, err error) {
	used := append(append([]netip.Prefix{}, services...), pods...)
	text, err := os.ReadFile(nodefolder.BridgeFile(dataDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the networks of the nodes: %w", err)
	}
	if out = parseStoredNetworks(string(text), services, used); out != nil {
		return out, nil
	}
	taken, err := nodebridge.Taken()
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, s := range services {
		p, err := nodebridge.Choose(dataDir, s.Addr().Is6(), append(taken, used...))
		if err != nil {
			return nil, err
		}
		out, lines = append(out, p), append(lines, p.String())
	}
	if err := os.WriteFile(nodefolder.BridgeFile(dataDir), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("remember the networks of the nodes: %w", err)
	}
	return out, nil
}

// parseStoredNetworks parses the stored networks of the bridge; nil if they do not fit the Services any more.
func parseStoredNetworks(text string, services, used []netip.Prefix) (out []netip.Prefix) {
	for i, word := range strings.Fields(text) {
		p, err := netip.ParsePrefix(word)
		if err != nil || i >= len(services) || p.Addr().Is6() != services[i].Addr().Is6() {
			return nil
		}
		for _, u := range used {
			if u.Overlaps(p) {
				return nil
			}
		}
		out = append(out, p)
	}
	if len(out) != len(services) {
		return nil
	}
	return out
}
