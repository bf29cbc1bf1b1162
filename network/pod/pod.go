// Package pod is the network of the Pods of one node. It answers the requests that come through package cni: a pair of
// interfaces between the Pod and the node's bridge, addresses out of the node's networks, routes, ports of the node that
// lead to the Pod, limits of bandwidth.
//
// Everything goes over netlink, in sockets that are open already, and nothing is executed. What must survive the process is
// one small file an address. Pods have single addresses and a route to the node: traffic between Pods of one node is routed
// and not bridged, so that Services and policies see it whether or not the kernel filters bridged frames.
//
// It works in the network namespace that the process is in, so several nodes on a machine do not meet.
package pod

import (
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
	"proa.dev/network/nft"
)

// Config says what the network of a node is like. DataDir and PodCIDRs must be given.
type Config struct {
	// DataDir is the folder of the node; what is kept goes into a folder "network" below it.
	DataDir  string
	NodeName string
	// PodCIDRs are the networks of this node's Pods, at most one of each family.
	PodCIDRs []netip.Prefix
	// ClusterCIDRs are the networks of all Pods: what leaves them gets the node's address. PodCIDRs if empty.
	ClusterCIDRs []netip.Prefix
	// Bridge is the name of the bridge, "proa0" if empty.
	Bridge string
	// Table is the name of the table of rules, "proa" if empty. Two clusters on one machine need two names each.
	Table string
	// MTU of the Pods' interfaces; that of the node's way out if 0.
	MTU int
	// Tunnel is the interface by which Pods of other nodes may be reached. While it is there, new Pods send nothing that does
	// not fit through it. May be empty.
	Tunnel string
	// Socket is where the CNI program finds us; in DataDir if empty.
	Socket string
	// Guard enforces policies. It may be nil.
	Guard Guard
	// Live tells which containers there are, so that what was left behind can be found. It may be nil, and it may fail.
	Live func(ctx context.Context) (map[string]bool, error)
	Log  *slog.Logger
}

// Guard decides who may talk to Pods. It is told whose an address is by the only one who knows for sure. Pods are named by
// namespace/name.
type Guard interface {
	// Attach is called before anything runs in a Pod. When it returns, policies are in force for the addresses.
	Attach(ctx context.Context, pod, uid string, addrs []netip.Addr) error
	// Adopt is called for Pods that an earlier process has connected.
	Adopt(pod, uid string, addrs []netip.Addr)
	// Detach is called when nobody has the addresses any more.
	Detach(addrs []netip.Addr)
	// Taken tells whether others believe that somebody has the address. Then it is not given to anybody else.
	Taken(a netip.Addr) bool
}

// complete fills in what was left out, and refuses what cannot work.
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
	if c.Bridge == "" {
		c.Bridge = "proa0"
	}
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

// folder is where everything is kept.
func (c Config) folder() string { return filepath.Join(c.DataDir, "network") }

// socketFor finds a path that fits into the address of a unix socket, which holds 107 bytes.
func socketFor(folder string) string {
	path := filepath.Join(folder, "cni.sock")
	if len(path) < 100 {
		return path
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(folder))
	return fmt.Sprintf("/run/proa/%x/cni.sock", h.Sum64())
}

// Network is the pod network of this node.
type Network struct {
	Config
	home   *os.File // the node's network namespace
	host   *netlink.Handle
	rules  *rules
	pool   *pool
	listen *net.UnixListener
	start  time.Time

	mu     sync.Mutex // guards bridge and mtu
	bridge int        // its index
	mtu    int

	turns [64]sync.Mutex // requests for one container come one after the other

	drain drain
}

// New makes the node's side of the network: bridge, rules, and the addresses that are in use. Whatever an earlier process
// has left is taken over. The socket is open when New returns; requests are answered once Serve runs.
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
	if n.host, err = netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER); err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
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
	n.pass()
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
	if n.host != nil {
		n.host.Close()
	}
	if n.home != nil {
		_ = n.home.Close()
	}
}

// Serve answers requests until ctx ends. Pods stay connected when it returns.
func (n *Network) Serve(ctx context.Context) error {
	defer n.close()
	var wg sync.WaitGroup
	wg.Go(func() { n.drain.run(ctx) })
	wg.Go(func() { n.lookAfter(ctx) })
	defer wg.Wait()
	return cni.Serve(ctx, n.listen, n, n.Log)
}

// lookAfter writes the rules again when somebody has removed them: programs that manage a firewall are known to do so.
func (n *Network) lookAfter(ctx context.Context) {
	look := time.NewTicker(30 * time.Second)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			n.mend()
		}
	}
}

// pass lets Pods through firewalls of the machine that drop what they do not know.
func (n *Network) pass() {
	added, err := n.rules.kernel.Pass(n.Table, n.ClusterCIDRs)
	switch {
	case err != nil:
		n.Log.Warn("a firewall of this machine may drop the traffic of Pods", "err", err)
	case added > 0:
		n.Log.Info("a firewall of this machine drops what it forwards; the traffic of Pods is let through", "rules", added)
	}
}

func (n *Network) mend() {
	n.pass()
	has, err := n.rules.there(n.Table)
	if has && err == nil {
		return
	}
	n.Log.Warn("somebody has removed the rules of the pod network; they are written again", "table", n.Table, "err", err)
	if err := n.rules.write(n.Config, n.pool.all()); err != nil {
		n.Log.Error("the rules of the pod network are missing", "err", err)
	}
}

// confName is first in most folders, so that runtimes, which take the first, take ours.
const confName = "05-proa.conflist"

// WriteConf tells the runtime that reads this folder to use the network; from then on the node has one.
func (n *Network) WriteConf(dir string) error {
	file := filepath.Join(dir, confName)
	if err := cni.WriteConf(file, n.Table, n.Socket); err != nil {
		return err
	}
	return appendLine(filepath.Join(n.folder(), confsName), file)
}

// Reclaim gives back the addresses of containers that are gone although nobody said so: the process, the runtime or the
// machine ended in between.
func (n *Network) Reclaim(ctx context.Context) {
	var live map[string]bool
	if n.Live != nil {
		var err error
		if live, err = n.Live(ctx); err != nil {
			n.Log.Warn("nobody knows which containers there are; only those without an interface count as gone", "err", err)
		}
	}
	now := time.Now()
	for _, r := range n.pool.all() {
		if r.Deleted {
			continue
		}
		_, err := n.host.LinkByName(r.HostIf)
		turn := n.turnOf(r.ContainerID)
		if !r.stale(n.start, now, live, !missing(err)) || !turn.TryLock() {
			continue
		}
		n.Log.Info("an address is free again: its container is gone", "address", r.Addresses, "container", r.ContainerID)
		if err := n.forget(r); err != nil {
			n.Log.Warn("could not give back an address", "address", r.Addresses, "err", err)
		}
		turn.Unlock()
	}
}

func missing(err error) bool {
	_, ok := errors.AsType[netlink.LinkNotFoundError](err)
	return ok
}
