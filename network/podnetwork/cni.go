package podnetwork

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proa.dev/network/cni"
)

// CNI handles a request of the runtime.
func (n *Network) CNI(ctx context.Context, req *cni.Request, conf *cni.Config, ns *os.File) (*cni.Result, error) {
	switch req.Command {
	case cni.Status:
		return nil, n.status()
	case cni.GC:
		return nil, n.collect(conf.Valid)
	}
	defer n.lock(req.ContainerID)()
	switch req.Command {
	case cni.Add:
		return n.add(ctx, req, conf, ns)
	case cni.Del:
		return nil, n.del(req)
	default: // package cni has refused all others
		return nil, n.check(req, conf, ns)
	}
}

// lock serializes the requests for a container.
func (n *Network) lock(containerID string) (unlock func()) {
	mu := n.lockOf(containerID)
	mu.Lock()
	return mu.Unlock
}

func (n *Network) lockOf(containerID string) *sync.Mutex {
	h := fnv.New32a()
	_, _ = h.Write([]byte(containerID))
	return &n.locks[h.Sum32()%uint32(len(n.locks))]
}

func (n *Network) status() error {
	if _, err := n.host.LinkByName(n.Bridge); err != nil {
		return cni.Errorf(cni.NotAvailable, "the bridge %s of the pod network is not there: %v", n.Bridge, err)
	}
	return nil
}

func (n *Network) add(ctx context.Context, req *cni.Request, conf *cni.Config, ns *os.File) (_ *cni.Result, err error) {
	name, uid := podName(req.Args)
	if n.Trace != nil && uid != "" {
		done := n.Trace(uid)
		defer func() { done(err) }()
	}
	if ns == nil {
		return nil, cni.Errorf(cni.UnknownContainer, "the network namespace %s was not handed over", req.NetNS)
	}
	if err := n.isNetNS(ns, req.NetNS); err != nil {
		return nil, err
	}
	if len(req.IfName) >= unix.IFNAMSIZ || strings.ContainsAny(req.IfName, "/: \t\n") || req.IfName == "lo" {
		return nil, cni.Errorf(cni.InvalidEnvironment, "%q cannot be the name of an interface", req.IfName)
	}
	ports, err := parsePorts(conf.RuntimeConfig.PortMappings)
	if err != nil {
		return nil, err
	}
	r := &record{ContainerID: req.ContainerID, IfName: req.IfName, Pod: name, UID: uid, NetNS: req.NetNS, Ports: ports, Since: time.Now()}
	if b := conf.RuntimeConfig.Bandwidth; b != nil {
		r.Shaped = b.EgressRate > 0
	}
	if old := n.pool.get(r.key()); old != nil {
		// A leftover of an earlier request that did not finish.
		if err := n.forget(old); err != nil {
			return nil, err
		}
	}
	if err := n.reserve(ctx, r); err != nil {
		return nil, err
	}
	if err := n.connect(ctx, ns, r, conf); err != nil {
		return nil, errors.Join(err, n.forget(r))
	}
	return n.result(r, req), nil
}

// reserve allocates addresses for the container. If none is free, it reclaims those of containers that no longer exist.
func (n *Network) reserve(ctx context.Context, r *record) error {
	err := n.pool.reserve(r)
	if errors.Is(err, errFull) {
		n.Reclaim(ctx)
		n.drain.flush(time.Now())
		err = n.pool.reserve(r)
	}
	if errors.Is(err, errFull) {
		return cni.Errorf(cni.TryAgainLater, "all addresses of %v are in use by Pods of this node; delete some, or give the node a larger pod CIDR", n.PodCIDRs)
	}
	return err
}

func (n *Network) connect(ctx context.Context, ns *os.File, r *record, conf *cni.Config) error {
	if err := n.attach(ns, r); err != nil {
		return err
	}
	if err := n.shape(r, conf.RuntimeConfig.Bandwidth); err != nil {
		return err
	}
	err := n.rules.open(r)
	if errors.Is(err, unix.ENOENT) {
		n.repairRules()
		err = n.rules.open(r)
	}
	if err != nil {
		return err
	}
	n.forgetUDP(r)
	if n.Guard == nil || r.Pod == "" {
		return nil
	}
	if err := n.Guard.Attach(ctx, r.Pod, r.UID, r.Addresses); err != nil {
		return cni.Errorf(cni.TryAgainLater, "%v", err)
	}
	return nil
}

// del disconnects a container. It is no error if the container is not known.
func (n *Network) del(req *cni.Request) error {
	r := n.pool.get(cni.Attachment{ContainerID: req.ContainerID, IfName: req.IfName})
	if r == nil {
		return nil
	}
	return n.forget(r)
}

// forget closes the host ports of a container and keeps its address until its interface is removed.
func (n *Network) forget(r *record) error {
	if n.rules != nil {
		if err := n.rules.shut(r); err != nil {
			return err
		}
		n.forgetUDP(r)
	}
	deleted := *r
	deleted.Deleted = true
	if err := n.pool.replace(r, &deleted); err != nil {
		return err
	}
	n.drain.add(&deleted)
	return nil
}

// collect disconnects every container that is not in valid.
func (n *Network) collect(valid []cni.Attachment) error {
	var errs []error
	for _, r := range n.pool.all() {
		if !r.Deleted && !slices.Contains(valid, r.key()) {
			done := n.lock(r.ContainerID)
			errs = append(errs, n.forget(r))
			done()
		}
	}
	return errors.Join(errs...)
}

// check reports whether a container is still connected as it was.
func (n *Network) check(req *cni.Request, conf *cni.Config, ns *os.File) error {
	r := n.pool.get(cni.Attachment{ContainerID: req.ContainerID, IfName: req.IfName})
	if r == nil {
		return cni.Errorf(cni.UnknownContainer, "container %s has no interface %s in the pod network", req.ContainerID, req.IfName)
	}
	var prev struct {
		IPs []struct {
			Address netip.Prefix `json:"address"`
		} `json:"ips"`
	}
	if len(conf.PrevResult) > 0 {
		if err := json.Unmarshal(conf.PrevResult, &prev); err != nil {
			return cni.Errorf(cni.DecodeFailure, "decode prevResult: %v", err)
		}
	}
	for _, ip := range prev.IPs {
		if !slices.Contains(r.Addresses, ip.Address.Addr()) {
			return cni.Errorf(cni.Internal, "%s is not an address of container %s, which has %v", ip.Address, req.ContainerID, r.Addresses)
		}
	}
	if link, err := n.host.LinkByName(r.HostIf); err != nil || link.Attrs().MasterIndex != n.bridgeIndex() {
		return cni.Errorf(cni.Internal, "interface %s is not connected to the bridge %s", r.HostIf, n.Bridge)
	}
	return n.checkInside(ns, r)
}

func (n *Network) checkInside(ns *os.File, r *record) error {
	var addrs []netlink.Addr
	err := n.inside(ns, func() error {
		pod, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer pod.Close()
		link, err := pod.LinkByName(r.IfName)
		if err != nil {
			return err
		}
		addrs, err = pod.AddrList(link, netlink.FAMILY_ALL)
		return err
	})
	if err != nil {
		return fmt.Errorf("look at %s in the container: %w", r.IfName, err)
	}
	for _, a := range r.Addresses {
		if !slices.ContainsFunc(addrs, func(x netlink.Addr) bool { return x.IP.Equal(a.AsSlice()) }) {
			return cni.Errorf(cni.Internal, "interface %s of container %s has lost its address %s", r.IfName, r.ContainerID, a)
		}
	}
	return nil
}

func (n *Network) result(r *record, req *cni.Request) *cni.Result {
	mtu := n.packetSize()
	out := &cni.Result{Interfaces: []cni.Interface{
		{Name: n.Bridge, MTU: mtu},
		{Name: r.HostIf, MTU: mtu},
		{Name: r.IfName, MAC: hardwareAddress(r.Addresses[0]).String(), MTU: mtu, Sandbox: req.NetNS},
	}}
	for _, a := range r.Addresses {
		for _, p := range n.PodCIDRs {
			if p.Contains(a) {
				out.Addresses = append(out.Addresses,
					cni.Address{Address: netip.PrefixFrom(a, a.BitLen()), Gateway: gateway(p), Interface: 2})
				out.Routes = append(out.Routes, cni.Route{Dst: everywhere(a), GW: gateway(p)})
			}
		}
	}
	return out
}

// podName returns the Pod and its UID from the CNI arguments that Kubernetes runtimes pass.
func podName(args string) (pod, uid string) {
	var namespace, name string
	for pair := range strings.SplitSeq(args, ";") {
		switch k, v, _ := strings.Cut(pair, "="); k {
		case "K8S_POD_NAMESPACE":
			namespace = v
		case "K8S_POD_NAME":
			name = v
		case "K8S_POD_UID":
			uid = v
		}
	}
	if name == "" {
		return "", ""
	}
	return namespace + "/" + name, uid
}
