package teardown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"

	"proa.dev/network/dns"
	"proa.dev/network/networkpolicy"
	"proa.dev/network/nodebridge"
	"proa.dev/network/noderoutes"
	netpod "proa.dev/network/podnetwork"
	"proa.dev/network/service"
	"proa.dev/node"
	"proa.dev/node/cgroup"
	"proa.dev/node/netns"
	"proa.dev/node/runtime"
	"proa.dev/node/shutdown"
	"proa.dev/run/datafolder"
	"proa.dev/run/machine/nodefolder"
)

// PurgeNode removes everything that the node of a data folder has made on this machine. The cluster must not be
// running.
func PurgeNode(ctx context.Context, dataDir string, log *slog.Logger) error {
	dir := nodefolder.AgentDir(dataDir)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	own, err := nodefolder.StoredRuntimeConfig(dataDir)
	if err != nil {
		return err
	}
	errs := []error{runtime.Purge(ctx, own, log)}
	errs = append(errs, node.Purge(ctx, dir, log), netpod.Purge(nodefolder.PodNetwork(dataDir, "", log)),
		purgeServices(dataDir), networkpolicy.Purge(nodefolder.PolicyTable(dataDir)), purgeRoutes(dataDir),
		purgeDNSAddresses(dataDir))
	if err := errors.Join(append(errs, cgroup.RemoveConfined(cgroup.RootFor(dir)))...); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// PurgeNodes removes everything that the nodes of a data folder have made on this machine. The cluster must not be
// running.
func PurgeNodes(ctx context.Context, dataDir string, log *slog.Logger) error {
	all, err := nodefolder.Existing(dataDir)
	if err != nil {
		return err
	}
	hadNode := len(all) > 0 || exists(nodefolder.AgentDir(dataDir))
	var errs []error
	for _, f := range all {
		if err := PurgeFurther(ctx, f, log); err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", f.Name, err))
		}
	}
	errs = append(errs, PurgeBridge(dataDir), PurgeNode(ctx, dataDir, log))
	if hadNode && !otherNodesHere(dataDir) {
		errs = append(errs, shutdown.RemoveOverride())
	}
	return errors.Join(errs...)
}

// otherNodesHere tells whether another cluster has a node on this machine: its Pod network is there or, with a foreign one, its folder.
func otherNodesHere(dataDir string) bool {
	known, _ := datafolder.Known()
	return nodefolder.OtherClustersHere(dataDir) ||
		slices.ContainsFunc(known, func(dir string) bool { return dir != dataDir && exists(nodefolder.AgentDir(dir)) })
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// PurgeFurther removes everything that a further node has made.
func PurgeFurther(ctx context.Context, f nodefolder.Node, log *slog.Logger) error {
	// The changes of the node's own network must not be undone in that of the machine, so the namespace is created if it is gone.
	if err := netns.Make(f.NetNS()); err != nil {
		return err
	}
	if err := netns.Do(f.NetNS(), func() error { return PurgeNode(ctx, f.Dir, log) }); err != nil {
		return err
	}
	if err := errors.Join(nodebridge.Unplug(f.NetNS()), netns.Remove(f.NetNS())); err != nil {
		return err
	}
	return os.RemoveAll(f.Dir)
}

// PurgeBridge removes the bridge of a data folder.
func PurgeBridge(dataDir string) error {
	if _, err := os.Stat(nodefolder.BridgeFile(dataDir)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := nodebridge.Purge(nodefolder.NodeBridge(dataDir)); err != nil {
		return err
	}
	if err := os.Remove(nodefolder.BridgeFile(dataDir)); err != nil {
		return err
	}
	_ = os.Remove(nodefolder.NodesDir(dataDir)) // only if no node is left
	return nil
}

// purgeServices removes the rules of Services and the routes to them.
func purgeServices(dataDir string) error {
	networks, err := serviceNetworks(dataDir, otherNodesHere(dataDir))
	return errors.Join(err, service.Purge(nodefolder.ServiceTable(dataDir), networks))
}

// serviceNetworks returns the networks of the Services of a node. A node of a former version has not stored them; if there are no other
// nodes, all routes to Services are its own then.
func serviceNetworks(dataDir string, otherNodes bool) ([]netip.Prefix, error) {
	networks, found, err := storedNetworks(nodefolder.ServiceNetworksFile(dataDir))
	if err == nil && !found && !otherNodes {
		networks = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	}
	return networks, err
}

// purgeRoutes removes the routes to other nodes.
func purgeRoutes(dataDir string) error {
	config, found, err := storedNodeRoutes(dataDir)
	if err != nil || !found {
		return err
	}
	return noderoutes.Purge(config)
}

// storedNodeRoutes returns the routes to other nodes that a node has made; found is false if there were none.
func storedNodeRoutes(dataDir string) (config noderoutes.Config, found bool, err error) {
	config = nodefolder.NodeRoutes(dataDir)
	config.Networks, found, err = storedNetworks(nodefolder.RoutesFile(dataDir))
	return config, found, err
}

// removeRoutes removes the routes to other nodes and to Services, and the addresses of the DNS server. The node makes them again.
func removeRoutes(dataDir string) error {
	services, err := serviceNetworks(dataDir, otherNodesHere(dataDir))
	errs := []error{err, service.RemoveRoutes(services), purgeDNSAddresses(dataDir)}
	config, found, err := storedNodeRoutes(dataDir)
	if errs = append(errs, err); found && len(config.Networks) > 0 {
		errs = append(errs, noderoutes.RemoveRoutes(config))
	}
	return errors.Join(errs...)
}

// storedNetworks returns the networks in a file that a node has written, and whether it is there.
func storedNetworks(file string) (networks []netip.Prefix, found bool, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	for word := range strings.FieldsSeq(string(data)) {
		if p, err := netip.ParsePrefix(word); err == nil {
			networks = append(networks, p)
		}
	}
	return networks, err == nil, err
}

// purgeDNSAddresses removes the addresses of the DNS server from the machine.
func purgeDNSAddresses(dataDir string) error {
	data, err := os.ReadFile(nodefolder.DNSAddressFile(dataDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var all []netip.Addr
	for _, text := range strings.Fields(string(data)) {
		if ip, err := netip.ParseAddr(text); err == nil {
			all = append(all, ip)
		}
	}
	return dns.Purge(all)
}
