package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/core"
)

// Two nodes must choose the same way to each other: one that sends plain packets while the other expects a tunnel is not heard. What one
// of them sees of its own links is not enough, as where a node has a second interface. So every node publishes the networks that are on
// its links in an annotation of its Node, and a route is used only where each of the two has the address of the other on a link.

// maxLinks is how many networks a node publishes.
const maxLinks = 64

// readLinks reads the networks that a Node says are on its links; published is false if it does not say.
func readLinks(n *corev1.Node) (links []netip.Prefix, published bool) {
	text, published := n.Annotations[core.OnLinkAnnotation]
	for word := range strings.SplitSeq(text, ",") {
		if p, err := netip.ParsePrefix(word); err == nil && len(links) < maxLinks {
			links = append(links, p.Masked())
		}
	}
	return links, published
}

func contains(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}

// routable tells whether packets to an address of another node, and those back, need no tunnel. Where one of the nodes does not
// publish its links, as those of older versions do not, what this node sees must do.
func (q *question) routable(self, other node, a netip.Addr) bool {
	if !self.published || !other.published {
		return q.onLink(a)
	}
	own, same := self.address(a.Is6())
	return same && contains(self.links, a) && contains(other.links, own)
}

// ownLinks are the networks that this node reaches without a router, but for those of Pods.
func (m *Mesh) ownLinks() (out []netip.Prefix, err error) {
	if m.Mode == Tunnels {
		return nil, nil
	}
	routes, err := m.host.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("read the routes: %w", err)
	}
	links, err := m.host.LinkList()
	if err != nil {
		return nil, fmt.Errorf("read the interfaces: %w", err)
	}
	up := map[int]bool{}
	for _, l := range links {
		up[l.Attrs().Index] = l.Attrs().Flags&net.FlagLoopback == 0 && l.Attrs().Flags&net.FlagUp != 0
	}
	for _, r := range routes {
		if r.Dst == nil || r.Gw != nil || r.Via != nil || len(r.MultiPath) > 0 || r.Type != unix.RTN_UNICAST || !up[r.LinkIndex] {
			continue
		}
		a, ok := netip.AddrFromSlice(r.Dst.IP)
		bits, _ := r.Dst.Mask.Size()
		p := netip.PrefixFrom(a.Unmap(), bits)
		if !ok || !p.IsValid() || bits == 0 || a.IsLinkLocalUnicast() || a.IsMulticast() || slices.ContainsFunc(m.Networks, p.Overlaps) || slices.Contains(out, p) {
			continue
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) })
	return out[:min(len(out), maxLinks)], nil
}

// lookAgain is how often it is looked whether the node has other links.
const lookAgain = 30 * time.Second

// publishLinks writes the links of this node into its Node when they are others than before, until ctx ends.
func (m *Mesh) publishLinks(ctx context.Context) {
	last, done := "", false
	for wait := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = lookAgain
		links, err := m.ownLinks()
		var words []string
		for _, p := range links {
			words = append(words, p.String())
		}
		text := strings.Join(words, ",")
		if err == nil && done && text == last {
			continue
		}
		if err == nil {
			err = m.Publish(ctx, core.OnLinkAnnotation, text)
		}
		if last, done = text, err == nil; err != nil && !errors.Is(err, context.Canceled) {
			m.Log.Warn("other nodes cannot be told which networks are on the links of this node", "err", err)
			wait = pause
		}
	}
}
