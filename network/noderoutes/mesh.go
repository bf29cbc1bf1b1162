// Package noderoutes connects the Pods of this node with those of other nodes. If another node is on the same link, a
// route through its address is enough. If there is a router between them that has no routes to Pods, the packets are
// tunneled (VXLAN).
//
// All routes follow from the Nodes: each has the networks of its Pods, its addresses, and the networks on its links
// (links.go), so that two nodes choose the same path to each other. The addresses inside the tunnel are derived from
// the networks of Pods. Nodes are not trusted blindly (trust.go): a route to a network outside the ranges of the
// cluster could hijack traffic.
package noderoutes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/network/nft"
)

// Mode is how packets reach other nodes.
type Mode string

const (
	// Auto uses routes to nodes on the same link and tunnels to others.
	Auto Mode = ""
	// Tunnels uses tunnels only: for networks that carry only packets with addresses of nodes.
	Tunnels Mode = "tunnels"
)

// DefaultDevice is the default name of the tunnel interface.
const DefaultDevice = "proa-vxlan"

// Config configures a Mesh. NodeName, Nodes and Networks are required.
type Config struct {
	NodeName string
	Nodes    client.View
	Mode     Mode
	// Device is the name of the tunnel interface, "proa-vxlan" if empty.
	Device string
	// Table is the name of the nftables table, "proa-nodes" if empty.
	Table string
	// Networks are the ranges of all Pods of the cluster: routes lead only to networks inside them.
	Networks []netip.Prefix
	// Services are the ranges of cluster IPs. No node has an address or a network there.
	Services []netip.Prefix
	// Alone means that no other cluster on this machine uses the same protocol number for its routes: then routes to
	// networks outside Networks are removed too, which an older version may have added.
	Alone bool
	// RecordEvent records a warning Event of a Node that claims what it must not have. May be nil.
	RecordEvent func(about kind.Object, reason, message string)
	// Publish sets an annotation of the Node of this node; nil publishes nothing.
	Publish func(ctx context.Context, annotation, value string) error
	// ProbeEvery and Dial override how often and how other nodes are probed, for tests.
	ProbeEvery time.Duration
	Dial       func(ctx context.Context, d *net.Dialer, addr string) (net.Conn, error)
	// ID and Port distinguish the tunnels of clusters, Protocol their routes; 1, 8472 and 80 if 0.
	ID, Port, Protocol int
	Log                *slog.Logger
}

func (c Config) complete() Config {
	if c.Device == "" {
		c.Device = DefaultDevice
	}
	if c.Table == "" {
		c.Table = "proa-nodes"
	}
	if c.ID == 0 {
		c.ID = 1
	}
	if c.Port == 0 {
		c.Port = 8472
	}
	if c.Protocol == 0 {
		c.Protocol = 80
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Mesh keeps the routes and tunnels to other nodes.
type Mesh struct {
	Config
	host   *netlink.Handle
	kernel *nft.Kernel
	guard  guard
	wake   wait.Signal

	// What follows is used by Run only: the networks of nodes, and the problems that were reported.
	held     map[netip.Prefix]types.UID
	reported map[refusal]bool
}

// New opens netlink in the network namespace of the thread; Run does the rest.
func New(config Config) (*Mesh, error) {
	if config.NodeName == "" || config.Nodes == nil || len(config.Networks) == 0 {
		return nil, errors.New("mesh: the name of the node, a view of Nodes and the networks of Pods must be given")
	}
	m := &Mesh{Config: config.complete(), wake: wait.NewSignal()}
	var err error
	if m.host, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	if m.kernel, err = nft.Open(); err != nil {
		m.host.Close()
		return nil, err
	}
	return m, nil
}

// pause is the pause after a failure: another program may be changing interfaces.
const pause = time.Second

// Run keeps the routes up to date until ctx ends. They stay then.
func (m *Mesh) Run(ctx context.Context) error {
	defer m.host.Close()
	defer func() { _ = m.kernel.Close() }()
	if err := m.Nodes.Reach(ctx, 0); err != nil {
		return fmt.Errorf("read Nodes: %w", err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { m.follow(ctx) })
	if m.Publish != nil {
		wg.Go(func() { m.publishLinks(ctx) })
		wg.Go(func() { m.probePeers(ctx) })
	}
	m.wake.Send()
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		case <-retry:
		}
		retry = nil
		if err := m.sync(); err != nil {
			m.Log.Error("some routes to other nodes are missing", "err", err)
			retry = time.After(pause)
		}
	}
}

// follow wakes Run when the relevant part of a Node changes; most updates of Nodes are heartbeats.
func (m *Mesh) follow(ctx context.Context) {
	known := map[string]string{}
	for e := range m.Nodes.Events(ctx) {
		if e.Gap {
			m.wake.Send()
			continue
		}
		n, ok := e.Object.(*corev1.Node)
		if !ok {
			continue
		}
		text := fmt.Sprint(readNode(n))
		if e.Deleted {
			text = ""
		}
		if known[n.Name] != text {
			known[n.Name] = text
			m.wake.Send()
		}
	}
}

func (m *Mesh) sync() error {
	var nodes []node
	for o := range m.Nodes.List("") {
		if n, ok := o.(*corev1.Node); ok {
			nodes = append(nodes, readNode(n))
		}
	}
	onLink := m.onLink
	if m.Mode == Tunnels {
		onLink = func(netip.Addr) bool { return false }
	}
	want := decide(question{m.NodeName, nodes, onLink, limits{m.Networks, m.Services}, m.held})
	m.held = want.held
	m.report(want.refused)
	return errors.Join(m.guardTunnel(want), m.apply(want))
}

// onLink reports whether packets to an address need no router.
func (m *Mesh) onLink(a netip.Addr) bool {
	routes, err := m.host.RouteGet(a.AsSlice())
	return err == nil && len(routes) > 0 && routes[0].Gw == nil && routes[0].Via == nil
}

// report logs claims of Nodes that are refused, and records Events, once for each.
func (m *Mesh) report(refused []refusal) {
	now := map[refusal]bool{}
	for _, r := range refused {
		if now[r] = true; m.reported[r] {
			continue
		}
		m.Log.Warn("a claim of a Node is refused", "node", r.node, "refused", r.text)
		if o, ok := m.Nodes.Get("", r.node); ok && m.RecordEvent != nil {
			m.RecordEvent(o, "RouteRefused", "node "+m.NodeName+" does not use "+r.text)
		}
	}
	m.reported = now
}
