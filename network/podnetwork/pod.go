// Package podnetwork is the network of the Pods of one node. It handles the CNI requests that come through package cni:
// it connects a Pod to the bridge of the node with a pair of interfaces, and sets up addresses, routes, host ports and
// bandwidth limits.
//
// All changes go over netlink sockets that stay open; no program is executed. What must survive the process is one
// small file per address. Pods have single addresses and a route to the node: traffic between Pods of one node is
// routed and not bridged, so that the rules of Services and network policies apply whether or not the kernel filters
// bridged frames.
//
// The package works in the network namespace of the process, so several nodes of one machine do not interfere.
package podnetwork

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proa.dev/network/cni"
	"proa.dev/network/interfaces"
	"proa.dev/network/nft"
)

// Config configures the Pod network of a node. DataDir and PodCIDRs are required.
type Config struct {
	// DataDir is the data folder of the node. State is kept in its folder "network".
	DataDir  string
	NodeName string
	// PodCIDRs are the networks of the Pods of this node, at most one for each address family.
	PodCIDRs []netip.Prefix
	// ClusterCIDRs are the networks of all Pods of the cluster: packets that leave them are masqueraded. PodCIDRs if
	// empty.
	ClusterCIDRs []netip.Prefix
	// Bridge is the name of the bridge, "proa0" if empty.
	Bridge string
	// Table is the name of the nftables table, "proa" if empty. Two clusters on one machine need two names each.
	Table string
	// MTU is the MTU of the interfaces of Pods; that of the default route if 0.
	MTU int
	// Tunnel is the interface by which Pods of other nodes may be reached. While it exists, new Pods get an MTU that
	// fits through it. May be empty.
	Tunnel string
	// Socket is the path of the socket for the CNI program; in DataDir if empty.
	Socket string
	// Guard enforces network policies. It may be nil.
	Guard Guard
	// Live returns the IDs of the containers that exist, so that leftovers can be found. It may be nil, and it may
	// fail.
	Live func(ctx context.Context) (map[string]bool, error)
	// Trace is called with the UID of a Pod that is being connected, and the function it returns with the outcome. It may be nil.
	Trace func(uid string) (done func(error))
	Log   *slog.Logger
}

// Guard enforces network policies. The Pod network calls it, because it knows first which Pod has an address. Pods are
// named by namespace/name.
type Guard interface {
	// Attach is called before anything runs in a Pod. When it returns, policies are in force for the addresses.
	Attach(ctx context.Context, pod, uid string, addrs []netip.Addr) error
	// Adopt is called for Pods that an earlier process has attached.
	Adopt(pod, uid string, addrs []netip.Addr)
	// Detach is called when the addresses are free.
	Detach(addrs []netip.Addr)
	// Taken reports whether the API still shows a Pod with the address. Such an address is not assigned again.
	Taken(a netip.Addr) bool
}

// complete returns the configuration with defaults, or an error if it cannot work.
func (c Config) complete() (Config, error) {
	if c.DataDir == "" {
		return c, errors.New("pod network: no data folder was given")
	}
	if len(c.PodCIDRs) == 0 {
		return c, errors.New("pod network: the node has no pod CIDR")
	}
	for _, p := range append(append([]netip.Prefix{}, c.PodCIDRs...), c.ClusterCIDRs...) {
		if !p.IsValid() {
			return c, errors.New("pod network: a CIDR is not valid")
		}
	}
	c.Bridge = c.BridgeName()
	if len(c.Bridge) >= unix.IFNAMSIZ {
		return c, fmt.Errorf("pod network: %q is too long for the name of an interface; use at most %d characters", c.Bridge, unix.IFNAMSIZ-1)
	}
	if c.Table == "" {
		c.Table = "proa"
	}
	if len(c.ClusterCIDRs) == 0 {
		c.ClusterCIDRs = c.PodCIDRs
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Socket == "" {
		c.Socket = socketFor(c.folder())
	}
	return c, nil
}

// folder returns the folder for the state of the network.
func (c Config) folder() string { return filepath.Join(c.DataDir, "network") }

// BridgeName returns the name of the bridge, also if the configuration leaves it to the default.
func (c Config) BridgeName() string { return cmp.Or(c.Bridge, "proa0") }

// HasRun reports whether the Pod network of the node has ever been set up, as far as its folder tells.
func (c Config) HasRun() bool {
	_, err := os.Stat(c.folder())
	return !errors.Is(err, os.ErrNotExist)
}

// socketFor returns a path that fits into the address of a unix socket, which holds 107 bytes.
func socketFor(folder string) string {
	path := filepath.Join(folder, "cni.sock")
	if len(path) < 100 {
		return path
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(folder))
	return fmt.Sprintf("/run/proa/%x/cni.sock", h.Sum64())
}

// Network is the Pod network of a node.
type Network struct {
	Config
	home        *os.File // the network namespace of the node
	host        *netlink.Handle
	connections *connections
	rules       *rules
	pool        *pool
	listen      *net.UnixListener
	start       time.Time

	mu     sync.Mutex // guards bridge and mtu
	bridge int        // the index of the bridge
	mtu    int

	locks [64]sync.Mutex // serialize the requests for one container

	drain drain
}

// New sets up the bridge and the rules, and reads the addresses that are in use. It takes over what an earlier process
// has left. The socket is open when New returns; requests are handled once Serve runs.
func New(ctx context.Context, config Config) (_ *Network, err error) {
	n := &Network{start: time.Now()}
	if n.Config, err = config.complete(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	if n.home, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return nil, fmt.Errorf("open the node's network namespace: %w", err)
	}
	if n.host, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	if n.connections, err = openConnections(); err != nil {
		return nil, err
	}
	if n.pool, err = openPool(filepath.Join(n.folder(), "addresses"), n.PodCIDRs, n.Log); err != nil {
		return nil, err
	}
	if err = n.setUp(); err != nil {
		return nil, err
	}
	n.drain.init(n, n.pool.all())
	for _, r := range n.pool.all() {
		if n.Guard != nil && r.Pod != "" {
			n.Guard.Adopt(r.Pod, r.UID, r.Addresses)
		}
	}
	n.Reclaim(ctx)
	kernel, err := nft.Open()
	if err != nil {
		return nil, err
	}
	n.rules = &rules{kernel: kernel}
	if err = n.rules.write(n.Config, n.pool.all()); err != nil {
		return nil, err
	}
	n.passFirewalls()
	n.listen, err = cni.Listen(n.Socket)
	return n, err
}

func (n *Network) close() {
	if n.listen != nil {
		_ = n.listen.Close()
	}
	if n.rules != nil {
		_ = n.rules.kernel.Close()
	}
	if n.connections != nil {
		_ = n.connections.close()
	}
	if n.host != nil {
		n.host.Close()
	}
	if n.home != nil {
		_ = n.home.Close()
	}
}

// Serve handles requests until ctx ends. Pods stay connected when it returns.
func (n *Network) Serve(ctx context.Context) error {
	defer n.close()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop() // when no more requests are handled, the rest ends too, and the caller learns of it
	wg.Go(func() { n.drain.run(ctx) })
	wg.Go(func() { n.keepRepaired(ctx) })
	return cni.Serve(ctx, n.listen, n, n.Log)
}

// keepRepaired writes the rules again when another program has removed them, as some firewall managers do, and repairs the bridge.
func (n *Network) keepRepaired(ctx context.Context) {
	resync := time.NewTicker(30 * time.Second)
	defer resync.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-resync.C:
			n.repairBridge()
			n.repairRules()
		}
	}
}

// passFirewalls adds rules that let packets of Pods pass firewalls of the machine that drop forwarded packets by
// default.
func (n *Network) passFirewalls() {
	added, err := n.rules.kernel.Pass(n.Table, n.ClusterCIDRs)
	switch {
	case err != nil:
		n.Log.Warn("a firewall of this machine may drop the traffic of Pods", "err", err)
	case added > 0:
		n.Log.Info("a firewall of this machine drops forwarded packets; rules that accept packets of Pods were added", "rules", added)
	}
}

// repairRules writes the rules again if they are missing.
func (n *Network) repairRules() {
	n.passFirewalls()
	has, err := n.rules.exist(n.Table)
	if has && err == nil {
		return
	}
	n.Log.Warn("the rules of the pod network were removed by another program; they are written again", "table", n.Table, "err", err)
	if err := n.rules.write(n.Config, n.pool.all()); err != nil {
		n.Log.Error("the rules of the pod network are missing", "err", err)
	}
}

// confName sorts first in most folders, so that a runtime, which uses the first file, uses ours.
const confName = "05-proa.conflist"

// WriteConf writes the CNI configuration for the runtime that reads this folder. From then on the node has a Pod
// network.
func (n *Network) WriteConf(dir string) error {
	file := filepath.Join(dir, confName)
	if err := cni.WriteConf(file, n.Table, n.Socket); err != nil {
		return err
	}
	return appendLine(filepath.Join(n.folder(), confsName), file)
}

// Reclaim frees the addresses of containers that no longer exist although no DEL request came, because the process, the
// runtime or the machine ended in between.
func (n *Network) Reclaim(ctx context.Context) {
	var live map[string]bool
	if n.Live != nil {
		var err error
		if live, err = n.Live(ctx); err != nil {
			n.Log.Warn("the containers of the runtime cannot be listed; only those without an interface count as deleted", "err", err)
		}
	}
	now := time.Now()
	for _, r := range n.pool.all() {
		if r.Deleted {
			continue
		}
		_, err := n.host.LinkByName(r.HostIf)
		lock := n.lockOf(r.ContainerID)
		if !r.isStale(n.start, now, live, !interfaces.IsNotFound(err)) || !lock.TryLock() {
			continue
		}
		n.Log.Info("an address is free again: its container no longer exists", "address", r.Addresses, "container", r.ContainerID)
		if err := n.forget(r); err != nil {
			n.Log.Warn("an address cannot be freed", "address", r.Addresses, "err", err)
		}
		lock.Unlock()
	}
}
