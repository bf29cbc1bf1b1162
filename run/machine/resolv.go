package machine

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"proa.dev/node/container"
	"proa.dev/run"
)

// maxResolvConf bounds what is read of a resolv.conf.
const maxResolvConf = 1 << 20

// resolvConf is the file that says which name servers a node has.
func resolvConf(n *run.NodeConfig) string {
	if n.ResolvConf != "" {
		return n.ResolvConf
	}
	return container.FindResolvConf()
}

// nodeResolv is the resolv.conf of the further nodes, and the name server of the machine that they cannot reach by themselves;
// empty if they can reach all.
func (s *Machine) nodeResolv() (text, server string) {
	data, err := os.ReadFile(resolvConf(&s.Node))
	if err != nil || len(data) > maxResolvConf {
		return "", "" // the first node has none either
	}
	return fromLink(string(data), s.link.Addresses(1)[0])
}

// fromLink rewrites a resolv.conf for those who cannot reach the loopback of the machine: they ask at the machine's address on
// the link instead, where such questions are handed on to server.
func fromLink(text string, machine netip.Addr) (out, server string) {
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

// writeResolv tells further nodes which name servers there are, where that has changed.
func (s *Machine) writeResolv(nodes []further) error {
	text, _ := s.nodeResolv()
	var errs []error
	for _, f := range nodes {
		if have, err := os.ReadFile(f.resolv()); err == nil && string(have) == text {
			continue
		}
		if err := os.WriteFile(f.resolv(), []byte(text), 0o644); err != nil { //nolint:gosec // G306: every Pod may read it
			errs = append(errs, fmt.Errorf("tell node %s its name servers: %w", f.name, err))
		}
	}
	return errors.Join(errs...)
}
