package nodestatus

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/cri"
)

// Facts is what is known of a node at one moment; its status is computed from it.
type Facts struct {
	Machine Machine
	// Storage is the size of the file system that Pods write to; 0 if unknown.
	Storage   int64
	Addresses []corev1.NodeAddress
	Runtime   runtimeInfo
	Devices   Devices
	Evicting  func(corev1.ResourceList) corev1.ResourceList
	Pressed   map[corev1.NodeConditionType]string // what is short, of the conditions that are true
	Volumes   []corev1.UniqueVolumeName
	// VolumesKnown reports that Volumes is complete.
	VolumesKnown bool
	// Refused are the addresses that the server does not accept for the node, each with the reason.
	Refused []string
	// Trouble is everything that keeps the node from being ready, in order.
	Trouble []error
}

// Runtime is what the status needs of the container runtime.
type Runtime interface {
	// About returns the name and version of the runtime.
	About(ctx context.Context) (name, version string, err error)
	Status(ctx context.Context) (*cri.StatusResponse, error)
	Images(ctx context.Context) ([]*cri.Image, error)
}

// runtimeInfo is what the runtime reported last.
type runtimeInfo struct {
	name, version string
	handlers      []corev1.NodeRuntimeHandler
	features      *corev1.NodeFeatures
	images        []*cri.Image
	// runtime and network say why containers cannot run; nil if they can.
	runtime, network error
}

// OfCRI makes a Runtime from a CRI client.
func OfCRI(c *cri.Client) Runtime { return criRuntime{c} }

type criRuntime struct{ c *cri.Client }

func (d criRuntime) About(ctx context.Context) (string, string, error) {
	v, err := d.c.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return "", "", err
	}
	return v.RuntimeName, v.RuntimeVersion, nil
}

func (d criRuntime) Status(ctx context.Context) (*cri.StatusResponse, error) {
	return d.c.Status(ctx, &cri.StatusRequest{})
}

func (d criRuntime) Images(ctx context.Context) ([]*cri.Image, error) {
	r, err := d.c.Images.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	return r.Images, nil
}

// runtimeTimeout is how long a runtime may not answer before it counts as down.
const runtimeTimeout = 30 * time.Second

// gatherFacts collects the facts.
func (n *Node) gatherFacts(ctx context.Context) *Facts {
	if m, err := n.host.Machine(); err == nil {
		n.machine = m
	} else {
		n.log.WarnContext(ctx, "the properties of the machine cannot be read; the last known ones are kept", "err", err)
	}
	f := &Facts{Machine: n.machine, Evicting: n.EvictionReserve, Pressed: map[corev1.NodeConditionType]string{}}
	if size, err := n.host.Size(n.Data); err == nil {
		f.Storage = size
	}
	var noAddress error
	f.Addresses, noAddress = n.addresses()
	f.Runtime = n.askRuntime(ctx)
	if n.Parts.Devices != nil {
		f.Devices = n.Parts.Devices()
		f.Devices.Reset = f.Devices.Reset && n.adopted
	}
	if n.Volumes != nil {
		f.Volumes, f.VolumesKnown = n.Volumes()
		f.Volumes = slices.Sorted(slices.Values(f.Volumes))
	}
	for _, t := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		if n.Pressure == nil {
			continue
		}
		if shortage, is := n.Pressure(t); is {
			f.Pressed[t] = shortage
		}
	}
	f.Trouble = n.trouble(f.Runtime)
	if noAddress != nil {
		f.Trouble = append(f.Trouble, noAddress)
	}
	return f
}

// trouble returns what keeps the node from being ready.
func (n *Node) trouble(a runtimeInfo) (all []error) {
	switch {
	case n.lastAnswer.IsZero():
		all = append(all, fmt.Errorf("container runtime status check may not have completed yet"))
	case time.Since(n.lastAnswer) >= runtimeTimeout:
		all = append(all, fmt.Errorf("container runtime is down"))
	}
	for _, c := range n.Checks {
		if err := c.Run(); err != nil {
			all = append(all, fmt.Errorf("%s is not healthy: %w", c.Name, err))
		}
	}
	for _, err := range []error{a.runtime, a.network} {
		if err != nil {
			all = append(all, err)
		}
	}
	if n.ShuttingDown != nil {
		if err := n.ShuttingDown(); err != nil {
			all = append(all, err)
		}
	}
	return all
}

// askRuntime asks the runtime. While it does not answer, its last answer is kept.
func (n *Node) askRuntime(ctx context.Context) runtimeInfo {
	ctx, stop := context.WithTimeout(ctx, checkEvery)
	defer stop()
	a := n.lastInfo
	status, err := n.Runtime.Status(ctx)
	if err != nil {
		if n.lastAnswer.IsZero() {
			a.network = fmt.Errorf("network state unknown")
		}
		n.lastInfo = a
		return a
	}
	a.runtime, a.network = conditions(status)
	n.mu.Lock()
	n.network = a.network
	n.mu.Unlock()
	if a.runtime == nil {
		n.lastAnswer = time.Now()
		a.handlers, a.features = featuresOf(status)
	}
	if name, version, err := n.Runtime.About(ctx); err == nil {
		a.name, a.version = name, version
	}
	if images, err := n.Runtime.Images(ctx); err == nil {
		a.images = images
	}
	n.lastInfo = a
	return a
}

// Network returns why Pods cannot get a network now. If there was none at the last check, the runtime is asked again.
func (n *Node) Network(ctx context.Context) error {
	n.mu.Lock()
	err := n.network
	n.mu.Unlock()
	if err == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, checkEvery)
	defer stop()
	status, failed := n.Runtime.Status(ctx)
	if failed != nil {
		return err
	}
	if _, err = conditions(status); err == nil {
		n.Refresh()
	}
	return err
}

// conditions reads the conditions of the runtime and of its network.
func conditions(s *cri.StatusResponse) (runtime, network error) {
	// A missing condition is shown as upstream shows it.
	shown := map[string]string{cri.RuntimeReady: "<nil>", cri.NetworkReady: "<nil>"}
	isTrue := map[string]bool{}
	for _, c := range s.GetStatus().GetConditions() {
		shown[c.Type] = fmt.Sprintf("%s=%t reason:%s message:%s", c.Type, c.Status, c.Reason, c.Message)
		isTrue[c.Type] = c.Status
	}
	if !isTrue[cri.RuntimeReady] {
		runtime = fmt.Errorf("container runtime not ready: %s", shown[cri.RuntimeReady])
	}
	if !isTrue[cri.NetworkReady] {
		network = fmt.Errorf("container runtime network not ready: %s", shown[cri.NetworkReady])
	}
	return runtime, network
}

// featuresOf reads the features of the runtime and its handlers. The handlers are sorted, so that equal lists compare as
// equal.
func featuresOf(s *cri.StatusResponse) (handlers []corev1.NodeRuntimeHandler, features *corev1.NodeFeatures) {
	for _, h := range s.GetRuntimeHandlers() {
		handlers = append(handlers, corev1.NodeRuntimeHandler{Name: h.GetName(), Features: &corev1.NodeRuntimeHandlerFeatures{
			RecursiveReadOnlyMounts: new(h.GetFeatures().GetRecursiveReadOnlyMounts()),
			UserNamespaces:          new(h.GetFeatures().GetUserNamespaces()),
		}})
	}
	slices.SortFunc(handlers, func(a, b corev1.NodeRuntimeHandler) int { return compare(a.Name, b.Name) })
	if f := s.GetFeatures(); f != nil {
		features = &corev1.NodeFeatures{SupplementalGroupsPolicy: new(f.GetSupplementalGroupsPolicy())}
	}
	return handlers, features
}

// addresses returns the addresses for the status: the configured ones, or the one by which the machine reaches others.
func (n *Node) addresses() ([]corev1.NodeAddress, error) {
	own := n.Config.Addresses
	if len(own) == 0 && !n.Cloud { // the cloud controller manager sets them
		if err := n.findAddress(); err != nil {
			return nil, fmt.Errorf("can't get ip address of node %s. error: %w", n.Name, err)
		}
		own = []netip.Addr{n.foundAddress}
	}
	var out []corev1.NodeAddress
	for _, a := range own {
		out = append(out, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	return append(out, corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.Hostname}), nil
}

// findAddress finds the address of the node, unless the machine still has the one that was found before, which others may use
// already.
func (n *Node) findAddress() error {
	if n.foundAddress.IsValid() && n.host.Has(n.foundAddress) {
		return nil
	}
	find := n.FindAddress
	if find == nil {
		find = outgoingAddress
	}
	found, err := find()
	if err != nil && n.foundAddress.IsValid() {
		return nil // it may come back
	}
	n.foundAddress = found
	return err
}

// outgoingAddress returns the address from which packets to other networks leave, or any that others could reach. No packet is
// sent.
func outgoingAddress() (netip.Addr, error) {
	for _, to := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		if conn, err := net.Dial("udp", to); err == nil {
			local, ok := conn.LocalAddr().(*net.UDPAddr)
			conn.Close()
			if a, valid := netip.AddrFromSlice(local.IP); ok && valid && usable(a.Unmap()) {
				return a.Unmap(), nil
			}
		}
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, x := range all {
		if p, err := netip.ParsePrefix(x.String()); err == nil && usable(p.Addr().Unmap()) {
			return p.Addr().Unmap(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("no interface has an address that others can reach; give one with --node-ip")
}

func usable(a netip.Addr) bool { return a.IsGlobalUnicast() }
