package machine

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"proa.dev/run"
	"proa.dev/run/machine/nodefolder"
)

// GivenRanges are the networks that the user has chosen for a new cluster; none if proa chooses.
type GivenRanges struct {
	Pods, Services []netip.Prefix
}

// OwnRanges returns networks for the Pods and Services of a new cluster if it cannot have the default ones; a network is
// empty if the user has given it, or if the default is free. The defaults are not free if another cluster has a node on
// this machine or is just getting one, if the machine has an address in one of them, or if they overlap networks that
// the user has given. Until this process ends, no other process gets the same networks.
func OwnRanges(dataDir string, given GivenRanges) (pods, services string, err error) {
	usual := run.Default()
	// wanted returns those of two networks that the user has not given.
	wanted := func(p, s []netip.Prefix) (out []netip.Prefix) {
		if len(given.Pods) == 0 {
			out = append(out, p...)
		}
		if len(given.Services) == 0 {
			out = append(out, s...)
		}
		return out
	}
	taken := slices.Concat(localAddresses(), reservedRanges(), given.Pods, given.Services)
	defaults := wanted(usual.ClusterCIDRs(), usual.ServiceCIDRs)
	if !nodefolder.OtherClustersHere(dataDir) && !overlaps(taken, defaults...) && ReserveRanges(defaults) {
		return "", "", nil
	}
	sum := sha256.Sum256([]byte(dataDir))
	p, s, found := freeRanges(int(sum[0]), func(p, s netip.Prefix) bool {
		networks := wanted([]netip.Prefix{p}, []netip.Prefix{s})
		return !overlaps(taken, networks...) && ReserveRanges(networks)
	})
	if !found {
		return "", "", errors.New("the usual networks of Pods and Services are in use on this machine, and no other free ones were found; " +
			"choose with --cluster-cidr and --service-cidr")
	}
	if len(given.Pods) == 0 {
		pods = p.String()
	}
	if len(given.Services) == 0 {
		services = s.String()
	}
	return pods, services, nil
}

// candidates is how many pairs of networks freeRanges tries.
const candidates = 60

// freeRanges returns the first pair of networks for Pods and Services that is free. The search begins at a pair that
// differs from cluster to cluster.
func freeRanges(begin int, free func(pods, services netip.Prefix) bool) (pods, services netip.Prefix, found bool) {
	for i := range candidates {
		n := byte((begin + i) % candidates)
		pods = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128 + n}), 16)
		services = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 192 + n}), 16)
		if free(pods, services) {
			return pods, services, true
		}
	}
	return pods, services, false
}

func overlaps(taken []netip.Prefix, with ...netip.Prefix) bool {
	return slices.ContainsFunc(taken, func(t netip.Prefix) bool { return slices.ContainsFunc(with, t.Overlaps) })
}

// localAddresses returns the addresses of this machine, including those of bridges and DNS servers of other clusters.
// The networks of these addresses do not count, because many machines are in all of 10.0.0.0/8.
func localAddresses() (out []netip.Prefix) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
		}
	}
	return out
}

// RangeUser describes what uses addresses of one of the networks on this machine: an address, a route, or a cluster that
// is just starting. It is empty if nothing does. Links of the cluster in the data folder do not count.
func RangeUser(dataDir string, networks []netip.Prefix) string {
	if user := addressIn(dataDir, networks); user != "" {
		return user
	}
	for _, r := range hostRoutes() {
		// A wider route, such as the default route or that of a VPN, is no conflict: the routes of a cluster take precedence.
		inside := slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Overlaps(r.to) && n.Bits() <= r.to.Bits() })
		if inside && !isOwnLink(dataDir, r.link) {
			return fmt.Sprintf("the route to %s through the interface %s%s", r.to, r.link, linkOwner(r.link))
		}
	}
	for _, r := range reservedRanges() {
		if overlaps([]netip.Prefix{r}, networks...) {
			return fmt.Sprintf("another cluster that is just starting, with the network %s", r)
		}
	}
	return ""
}

// addressIn describes an address of this machine that is in one of the networks; empty if there is none.
func addressIn(dataDir string, networks []netip.Prefix) string {
	links, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, link := range links {
		all, err := link.Addrs()
		if err != nil || isOwnLink(dataDir, link.Name) {
			continue
		}
		for _, a := range all {
			p, err := netip.ParsePrefix(a.String())
			if err == nil && slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(p.Addr()) }) {
				return fmt.Sprintf("the address %s of the interface %s%s", p.Addr(), link.Name, addressOwner(link, p.Addr()))
			}
		}
	}
	return ""
}

// podBridge returns the name of the bridge of the Pods of a cluster.
func podBridge(dataDir string) string {
	return nodefolder.PodNetwork(dataDir, "", nil).BridgeName()
}

// HasPodBridge reports whether the bridge of the Pods of a cluster exists: it has a node, or had one when it was stopped.
func HasPodBridge(dataDir string) bool {
	_, err := net.InterfaceByName(podBridge(dataDir))
	return err == nil
}

// isOwnLink reports whether a link belongs to the cluster in the data folder.
func isOwnLink(dataDir, name string) bool {
	return name == podBridge(dataDir) || name == nodefolder.Tunnel(dataDir) ||
		strings.HasPrefix(name, nodefolder.NodeBridge(dataDir).Bridge)
}

// addressOwner says where an address may come from, as far as its interface tells.
func addressOwner(link net.Interface, address netip.Addr) string {
	if link.Flags&net.FlagLoopback != 0 && !address.IsLoopback() {
		return fmt.Sprintf(" (if a cluster has left it whose folder was removed without \"proa down --purge\": \"ip address delete %s dev %s\")",
			address, link.Name)
	}
	return linkOwner(link.Name)
}

// linkOwner says that a link belongs to a cluster of proa, if its name tells.
func linkOwner(name string) string {
	if strings.HasPrefix(name, "proa") {
		return ", which has the Pods of another cluster"
	}
	return ""
}

// hostRoute is a route of this machine.
type hostRoute struct {
	to   netip.Prefix
	link string
}

// hostRoutes returns the routes of this machine. Routes that cannot be read are left out.
func hostRoutes() (out []hostRoute) {
	if data, err := os.ReadFile("/proc/net/route"); err == nil {
		out = parseRoutes4(string(data))
	}
	if data, err := os.ReadFile("/proc/net/ipv6_route"); err == nil {
		out = append(out, parseRoutes6(string(data))...)
	}
	return out
}

// parseRoutes4 parses /proc/net/route: the interface, then the destination and, as the eighth field, the mask, as
// numbers in the byte order of the machine.
func parseRoutes4(text string) (out []hostRoute) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 8 {
			continue
		}
		to, err := strconv.ParseUint(fields[1], 16, 32)
		mask, errMask := strconv.ParseUint(fields[7], 16, 32)
		if err != nil || errMask != nil {
			continue // the headline
		}
		var ip [4]byte
		binary.NativeEndian.PutUint32(ip[:], uint32(to))
		out = append(out, hostRoute{netip.PrefixFrom(netip.AddrFrom4(ip), bits.OnesCount32(uint32(mask))), fields[0]})
	}
	return out
}

// parseRoutes6 parses /proc/net/ipv6_route: the destination, its length, and the interface as the last field.
func parseRoutes6(text string) (out []hostRoute) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 10 {
			continue
		}
		raw, err := hex.DecodeString(fields[0])
		length, errLength := strconv.ParseUint(fields[1], 16, 8)
		ip, ok := netip.AddrFromSlice(raw)
		if err == nil && errLength == nil && ok {
			out = append(out, hostRoute{netip.PrefixFrom(ip, int(length)), fields[len(fields)-1]})
		}
	}
	return out
}

// reservedRanges returns the networks that are reserved by ReserveRanges, in this process or another.
func reservedRanges() (out []netip.Prefix) {
	data, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		if _, name, found := strings.Cut(strings.TrimSpace(line), " "+reservationPrefix); found {
			if p, err := netip.ParsePrefix(name); err == nil {
				out = append(out, p)
			}
		}
	}
	return out
}
