package podnetwork

import (
	"fmt"
	"math"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proa.dev/network/cni"
)

// bucket is a token bucket limit: the rate in bytes per second, and the burst in bytes.
type bucket struct {
	rate          uint64
	burst, buffer uint32
	limit         uint32
}

// latency is how long a packet may be queued before it is dropped, in seconds.
const latency = 0.025

// newBucket converts bits per second and a burst in bits; a rate of 0 means no limit.
func newBucket(rate, burst uint64, mtu int) (bucket, bool, error) {
	if rate == 0 {
		return bucket{}, false, nil
	}
	b := bucket{rate: rate / 8}
	// The burst must hold a packet with its frame, or nothing ever passes. The kernel stores the time that a full
	// bucket takes as a 32-bit number, which limits the burst.
	least := uint64(mtu) + 64
	most := min(float64(b.rate)*math.MaxInt32/1e6/netlink.TickInUsec(), math.MaxInt32)
	if float64(least) > most {
		return bucket{}, false, cni.Errorf(cni.InvalidConfig, "a bandwidth of %d bits a second is too little for a single packet", rate)
	}
	if burst == 0 {
		burst = rate / 10
	}
	b.burst = uint32(min(float64(max(burst/8, least)), most))
	b.buffer = netlink.Xmittime(b.rate, b.burst)
	b.limit = uint32(min(float64(b.rate)*latency+float64(b.burst), math.MaxUint32))
	return b, true, nil
}

// shape limits the bandwidth of a container in both directions.
func (n *Network) shape(r *record, limits *cni.Bandwidth) error {
	if limits == nil {
		return nil
	}
	in, limitIn, err := newBucket(limits.IngressRate, limits.IngressBurst, n.packetSize())
	if err != nil {
		return err
	}
	out, limitOut, err := newBucket(limits.EgressRate, limits.EgressBurst, n.packetSize())
	if err != nil || (!limitIn && !limitOut) {
		return err
	}
	link, err := n.host.LinkByName(r.HostIf)
	if err != nil {
		return fmt.Errorf("find the interface to limit: %w", err)
	}
	if limitIn {
		// Packets to the container leave the node through this interface.
		if err := n.queue(link, in); err != nil {
			return err
		}
	}
	if !limitOut {
		return nil
	}
	return n.shapeOut(link, r, out)
}

func (n *Network) queue(link netlink.Link, b bucket) error {
	err := n.host.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       b.rate, Buffer: b.buffer, Limit: b.limit,
	})
	if err != nil {
		return fmt.Errorf("limit the bandwidth of %s (does the kernel have the tbf queue?): %w", link.Attrs().Name, err)
	}
	return nil
}

// shapeOut limits what leaves a container. Queues work on egress only, so packets from the container are redirected
// through an IFB device.
func (n *Network) shapeOut(link netlink.Link, r *record, b bucket) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.Flags = ifbName(r.HostIf), n.packetSize(), net.FlagUp
	ifb := &netlink.Ifb{LinkAttrs: attrs}
	if err := n.host.LinkAdd(ifb); err != nil {
		return fmt.Errorf("make the device that limits what a Pod sends (does the kernel have ifb?): %w", err)
	}
	if err := n.queue(ifb, b); err != nil {
		return err
	}
	err := n.host.QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
	}})
	if err != nil {
		return fmt.Errorf("limit what a Pod sends (does the kernel have the ingress queue?): %w", err)
	}
	err = n.host.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: link.Attrs().Index, Parent: netlink.MakeHandle(0xffff, 0), Priority: 1, Protocol: unix.ETH_P_ALL,
		},
		ClassId: netlink.MakeHandle(1, 1),
		Actions: []netlink.Action{netlink.NewMirredAction(ifb.Index)},
	})
	if err != nil {
		return fmt.Errorf("limit what a Pod sends (does the kernel have u32 and mirred?): %w", err)
	}
	return nil
}
