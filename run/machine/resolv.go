package machine

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"proa.dev/node/container"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/settings"
)

// maxResolvConf bounds the size of a resolv.conf.
const maxResolvConf = 1 << 20

// resolvConf returns the file that names the DNS servers of a node.
func resolvConf(n *settings.NodeConfig) string {
	if n.ResolvConf != "" {
		return n.ResolvConf
	}
	return container.FindResolvConf()
}

// nodeResolv returns the resolv.conf of the further nodes, and the address of a DNS server on the loopback of the
// machine to which their queries must be relayed; empty if they reach all servers themselves.
func (s *Machine) nodeResolv() (text, server string) {
	data, err := os.ReadFile(resolvConf(&s.Node))
	if err != nil || len(data) > maxResolvConf {
		return "", "" // the first node has none either
	}
	return rewriteForBridge(string(data), s.bridge.Addresses(1)[0])
}

// rewriteForBridge rewrites a resolv.conf for nodes that cannot reach the loopback of the machine: a DNS server there is
// replaced by the machine's address on the bridge, where queries are relayed to server.
func rewriteForBridge(text string, machine netip.Addr) (out, server string) {
	var b strings.Builder
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			b.WriteString(strings.TrimRight(line, "\n") + "\n")
			continue
		}
		ip, err := netip.ParseAddr(words[1])
		switch {
		case err != nil || !ip.IsLoopback():
			b.WriteString("nameserver " + words[1] + "\n")
		case server == "":
			server = at(ip.Unmap(), 53)
			b.WriteString("nameserver " + machine.String() + "\n")
		}
	}
	return b.String(), server
}

// writeResolv writes the resolv.conf of further nodes where it has changed.
func (s *Machine) writeResolv(nodes []nodefolder.Node) error {
	text, _ := s.nodeResolv()
	var errs []error
	for _, f := range nodes {
		if have, err := os.ReadFile(f.ResolvConf()); err == nil && string(have) == text {
			continue
		}
		if err := os.WriteFile(f.ResolvConf(), []byte(text), 0o644); err != nil { //nolint:gosec // G306: every Pod may read it
			errs = append(errs, fmt.Errorf("tell node %s its name servers: %w", f.Name, err))
		}
	}
	return errors.Join(errs...)
}
