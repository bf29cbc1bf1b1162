package noderoutes

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

	"proa.dev/internal/wait"
	"proa.dev/kinds/core/nodekind"
)

// Two nodes must choose the same path to each other: packets that one sends directly are dropped if the other expects a
// tunnel. What one of them sees on its own links is not enough, for instance if a node has a second interface. So every
// node publishes the networks on its links in an annotation of its Node, and a direct route is used only if each of the
// two has the address of the other on a link.

// maxLinks is how many networks a node publishes.
const maxLinks = 64

// readLinks reads the networks on the links of a Node; published is false without the annotation.
func readLinks(n *corev1.Node) (links []netip.Prefix, published bool) {
	text, published := n.Annotations[nodekind.OnLinkAnnotation]
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

// isRoutable reports whether packets between this node and an address of another node need no tunnel. If one of the
// nodes does not publish its links, as older versions do, only the links of this node count.
func (q *question) isRoutable(self, other node, a netip.Addr) bool {
	if !self.published || !other.published {
		return q.onLink(a)
	}
	own, same := self.address(a.Is6())
	return same && contains(self.links, a) && contains(other.links, own)
}

// ownLinks returns the networks that this node reaches without a router, except for those of Pods.
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
		if !ok || !p.IsValid() || bits == 0 || a.IsLinkLocalUnicast() || a.IsMulticast() || slices.ContainsFunc(m.Networks, p.Overlaps) ||
			slices.Contains(out, p) {
			continue
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) })
	return out[:min(len(out), maxLinks)], nil
}

// linkCheckPeriod is how often the node checks its links.
const linkCheckPeriod = 30 * time.Second

// publishLinks writes the links of this node into its Node whenever they change, until ctx ends.
func (m *Mesh) publishLinks(ctx context.Context) {
	last, done := "", false
	for next := time.Duration(0); ; {
		if wait.Sleep(ctx, next) != nil {
			return
		}
		next = linkCheckPeriod
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
			err = m.Publish(ctx, nodekind.OnLinkAnnotation, text)
		}
		if last, done = text, err == nil; err != nil && !errors.Is(err, context.Canceled) {
			m.Log.Warn("the networks on the links of this node cannot be published", "err", err)
			next = pause
		}
	}
}
