// Package mesh connects the Pods of this node with those of others. Where another node is on the same link, a route through
// its address is enough. Where there is a router between them that knows nothing of Pods, their packets travel inside those of
// the nodes (VXLAN).
//
// Everything follows from the Nodes alone: each says which networks its Pods have, what its own addresses are, and which networks are
// on its links (links.go), so that two nodes choose the same way to each other. The addresses inside the tunnel are made from the networks
// of Pods. A Node is not believed
// blindly (trust.go): a route to a network outside the cluster's ranges would catch traffic that is meant for others.
package mesh

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
	"proa.dev/kinds/kind"
	"proa.dev/network/nft"
)

// Mode says how packets reach other nodes.
type Mode string

const (
	// Auto uses routes to nodes on the same link and tunnels to others.
	Auto Mode = ""
	// Tunnels uses tunnels only: for networks that carry nothing but the nodes' own addresses.
	Tunnels Mode = "tunnels"
)

// UsualDevice is the name of the tunnel's interface where none is given.
const UsualDevice = "proa-vxlan"

// Config says for which node. NodeName, Nodes and Networks must be given.
type Config struct {
	NodeName string
	Nodes    client.View
	Mode     Mode
	// Device is the name of the tunnel's interface, "proa-vxlan" if empty.
	Device string
	// Table is the name of the table of rules, "proa-nodes" if empty.
	Table string
	// Networks are the ranges of all Pods of the cluster: there are routes to networks inside them only.
	Networks []netip.Prefix
	// Services are the ranges of cluster IPs. No node has an address or a network there.
	Services []netip.Prefix
	// Alone says that no other cluster on this machine marks its routes with the same number: then those to networks outside
	// Networks are removed too, which an older version may have made.
	Alone bool
	// Complain tells people what a Node says of itself and is not believed, as an Event. May be nil.
	Complain func(about kind.Object, reason, message string)
	// Publish sets an annotation of this node's Node; nil publishes nothing.
	Publish func(ctx context.Context, annotation, value string) error
	// ProbeEvery is how often other nodes are probed, and Dial how, for tests; zero and nil for the usual way.
	ProbeEvery time.Duration
	Dial       func(ctx context.Context, d *net.Dialer, addr string) (net.Conn, error)
	// ID and Port tell the tunnels of one cluster from those of another, Protocol its routes; 1, 8472 and 80 if 0.
	ID, Port, Protocol int
	Log                *slog.Logger
}

func (c Config) complete() Config {
	if c.Device == "" {
		c.Device = UsualDevice
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

// Mesh keeps the ways to other nodes.
type Mesh struct {
	Config
	host   *netlink.Handle
	kernel *nft.Kernel
	guard  guard
	wake   chan struct{}

	// What follows belongs to Run: the networks that nodes have, and what people have been told about.
	held map[netip.Prefix]types.UID
	told map[refusal]bool
}

// New opens the way to the kernel, in the network namespace that the thread is in; Run does the rest.
func New(config Config) (*Mesh, error) {
	if config.NodeName == "" || config.Nodes == nil || len(config.Networks) == 0 {
		return nil, errors.New("mesh: the name of the node, a view of Nodes and the networks of Pods must be given")
	}
	m := &Mesh{Config: config.complete(), wake: make(chan struct{}, 1)}
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

// The pause after something went wrong: somebody may be changing interfaces.
const pause = time.Second

// Run keeps the ways as the Nodes say, until ctx ends. They stay then.
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
	m.signal()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		case <-again:
		}
		again = nil
		if err := m.sync(); err != nil {
			m.Log.Error("the ways to other nodes are not all there", "err", err)
			again = time.After(pause)
		}
	}
}

// follow notices changes of what counts; Nodes write their status all the time.
func (m *Mesh) follow(ctx context.Context) {
	known := map[string]string{}
	for e := range m.Nodes.Events(ctx) {
		if e.Gap {
			m.signal()
			continue
		}
		n, ok := e.Object.(*corev1.Node)
		if !ok {
			continue
		}
		text := fmt.Sprint(read(n))
		if e.Deleted {
			text = ""
		}
		if known[n.Name] != text {
			known[n.Name] = text
			m.signal()
		}
	}
}

func (m *Mesh) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *Mesh) sync() error {
	var nodes []node
	for o := range m.Nodes.List("") {
		if n, ok := o.(*corev1.Node); ok {
			nodes = append(nodes, read(n))
		}
	}
	onLink := m.onLink
	if m.Mode == Tunnels {
		onLink = func(netip.Addr) bool { return false }
	}
	want := decide(question{m.NodeName, nodes, onLink, limits{m.Networks, m.Services}, m.held})
	m.held = want.held
	m.tell(want.refused)
	return errors.Join(m.guardTunnel(want), m.apply(want))
}

// onLink tells whether packets to an address need no router.
func (m *Mesh) onLink(a netip.Addr) bool {
	routes, err := m.host.RouteGet(a.AsSlice())
	return err == nil && len(routes) > 0 && routes[0].Gw == nil && routes[0].Via == nil
}

// tell logs what Nodes say of themselves and are not believed about, and makes Events of it, once for each.
func (m *Mesh) tell(refused []refusal) {
	now := map[refusal]bool{}
	for _, r := range refused {
		if now[r] = true; m.told[r] {
			continue
		}
		m.Log.Warn("a Node says something of itself that is not believed", "node", r.node, "refused", r.text)
		if o, ok := m.Nodes.Get("", r.node); ok && m.Complain != nil {
			m.Complain(o, "RouteRefused", "node "+m.NodeName+" does not use "+r.text)
		}
	}
	m.told = now
}
