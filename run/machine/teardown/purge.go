package teardown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"

	"proa.dev/network/dns"
	"proa.dev/network/networkpolicy"
	"proa.dev/network/nodebridge"
	"proa.dev/network/noderoutes"
	netpod "proa.dev/network/podnetwork"
	"proa.dev/network/service"
	"proa.dev/node"
	"proa.dev/node/netns"
	"proa.dev/node/runtime"
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
		service.Purge(nodefolder.ServiceTable(dataDir)), networkpolicy.Purge(nodefolder.PolicyTable(dataDir)), purgeRoutes(dataDir),
		purgeDNSAddresses(dataDir))
	if err := errors.Join(errs...); err != nil {
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
	var errs []error
	for _, f := range all {
		if err := PurgeFurther(ctx, f, log); err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", f.Name, err))
		}
	}
	return errors.Join(append(errs, PurgeBridge(dataDir), PurgeNode(ctx, dataDir, log))...)
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

// purgeRoutes removes the routes to other nodes.
func purgeRoutes(dataDir string) error {
	data, err := os.ReadFile(nodefolder.RoutesFile(dataDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil // there were none
	}
	if err != nil {
		return err
	}
	config := nodefolder.NodeRoutes(dataDir)
	for _, word := range strings.Fields(string(data)) {
		if p, err := netip.ParsePrefix(word); err == nil {
			config.Networks = append(config.Networks, p)
		}
	}
	return noderoutes.Purge(config)
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
