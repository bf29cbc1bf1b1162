package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"proa.dev/network/link"
	"proa.dev/run"
)

// linkOf names the link that the nodes of a data folder share, apart for each cluster.
func linkOf(dataDir string) link.Config {
	sum := sha256.Sum256([]byte(dataDir))
	id := hex.EncodeToString(sum[:4])
	return link.Config{Bridge: run.LinkPrefix + id, Table: "proa-" + id + "-link"}
}

// linkFile remembers the networks of the link, so that nodes keep their addresses.
func linkFile(dataDir string) string { return filepath.Join(nodesDir(dataDir), "link") }

// openLink makes what several nodes of this machine share. The first node, and the server, have an address on it.
func (s *Machine) openLink() error {
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
	if s.Node.BinDir, err = binDir(&s.Node, s.DataDir); err != nil {
		return err
	}
	c := linkOf(s.DataDir)
	c.Pods = s.ClusterCIDRs()
	if c.Networks, err = linkNetworks(s.DataDir, s.ServiceCIDRs, c.Pods); err != nil {
		return err
	}
	if err := link.Ensure(c); err != nil {
		return err
	}
	s.link, s.Node.IPs = &c, c.Addresses(1)
	return nil
}

// makeNodesDir makes the folder of the further nodes. Processes of Pods with users of their own pass through it on their way to their root, whatever
// the umask is.
func makeNodesDir(dataDir string) error {
	if err := os.MkdirAll(nodesDir(dataDir), 0o700); err != nil {
		return err
	}
	return os.Chmod(nodesDir(dataDir), 0o711) //nolint:gosec // G302: see above
}

// linkNetworks are those of the link: what is remembered, or new ones that collide with nothing on this machine. There is one
// for each family of the Services.
func linkNetworks(dataDir string, services, pods []netip.Prefix) (out []netip.Prefix, err error) {
	used := append(append([]netip.Prefix{}, services...), pods...)
	text, err := os.ReadFile(linkFile(dataDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the networks of the nodes: %w", err)
	}
	if out = remembered(string(text), services, used); out != nil {
		return out, nil
	}
	taken, err := link.Taken()
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, s := range services {
		p, err := link.Choose(dataDir, s.Addr().Is6(), append(taken, used...))
		if err != nil {
			return nil, err
		}
		out, lines = append(out, p), append(lines, p.String())
	}
	if err := os.WriteFile(linkFile(dataDir), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("remember the networks of the nodes: %w", err)
	}
	return out, nil
}

// remembered reads the networks of a link, if they still fit.
func remembered(text string, services, used []netip.Prefix) (out []netip.Prefix) {
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

// purgeLink removes the link of a data folder.
func purgeLink(dataDir string) error {
	if _, err := os.Stat(linkFile(dataDir)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := link.Purge(linkOf(dataDir)); err != nil {
		return err
	}
	if err := os.Remove(linkFile(dataDir)); err != nil {
		return err
	}
	_ = os.Remove(nodesDir(dataDir)) // only if no node is left
	return nil
}
