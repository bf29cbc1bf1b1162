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

// Facts are what is true of a node at one moment.
type Facts struct {
	Machine Machine
	// Storage is the size of the filesystem that Pods write to; 0 if it is not known.
	Storage   int64
	Addresses []corev1.NodeAddress
	Runtime   answer
	Devices   Devices
	Evicting  func(corev1.ResourceList) corev1.ResourceList
	Pressed   map[corev1.NodeConditionType]bool
	Volumes   []corev1.UniqueVolumeName
	// VolumesKnown says that Volumes are all there are.
	VolumesKnown bool
	// Refused are the addresses that the server does not let the node have, each with the reason.
	Refused []string
	// Trouble is everything that keeps the node from being ready, in order.
	Trouble []error
}

// Runtime is what the status needs of the container runtime.
type Runtime interface {
	// About is the name and version of the runtime.
	About(ctx context.Context) (name, version string, err error)
	Status(ctx context.Context) (*cri.StatusResponse, error)
	Images(ctx context.Context) ([]*cri.Image, error)
}

// answer is what the runtime said.
type answer struct {
	name, version string
	handlers      []corev1.NodeRuntimeHandler
	features      *corev1.NodeFeatures
	images        []*cri.Image
	// runtime and network say why containers cannot run.
	runtime, network error
}

// OfCRI makes a Runtime of a client.
func OfCRI(c *cri.Client) Runtime { return door{c} }

type door struct{ c *cri.Client }

func (d door) About(ctx context.Context) (string, string, error) {
	v, err := d.c.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return "", "", err
	}
	return v.RuntimeName, v.RuntimeVersion, nil
}

func (d door) Status(ctx context.Context) (*cri.StatusResponse, error) {
	return d.c.Status(ctx, &cri.StatusRequest{})
}

func (d door) Images(ctx context.Context) ([]*cri.Image, error) {
	r, err := d.c.Images.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	return r.Images, nil
}

// silence is how long a runtime may say nothing before it counts as down.
const silence = 30 * time.Second

// gather looks around.
func (n *Node) gather(ctx context.Context) *Facts {
	f := &Facts{Machine: n.host.Machine(), Evicting: n.Evicting, Pressed: map[corev1.NodeConditionType]bool{}}
	if size, err := n.host.Size(n.Data); err == nil {
		f.Storage = size
	}
	var homeless error
	f.Addresses, homeless = n.addresses()
	f.Runtime = n.ask(ctx)
	if n.Parts.Devices != nil {
		f.Devices = n.Parts.Devices()
		f.Devices.Reset = f.Devices.Reset && n.adopted
	}
	if n.Volumes != nil {
		f.Volumes, f.VolumesKnown = n.Volumes()
		f.Volumes = slices.Sorted(slices.Values(f.Volumes))
	}
	for _, t := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		f.Pressed[t] = n.Pressed != nil && n.Pressed(t)
	}
	f.Trouble = n.trouble(f.Runtime)
	if homeless != nil {
		f.Trouble = append(f.Trouble, homeless)
	}
	return f
}

// trouble collects what keeps the node from being ready.
func (n *Node) trouble(a answer) (all []error) {
	switch {
	case n.asked.IsZero():
		all = append(all, fmt.Errorf("container runtime status check may not have completed yet"))
	case time.Since(n.asked) >= silence:
		all = append(all, fmt.Errorf("container runtime is down"))
	}
	for _, c := range n.Checks {
		if err := c.Fn(); err != nil {
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

// ask asks the runtime. What it said last is kept while it does not answer.
func (n *Node) ask(ctx context.Context) answer {
	ctx, stop := context.WithTimeout(ctx, lookEvery)
	defer stop()
	a := n.last
	status, err := n.Runtime.Status(ctx)
	if err != nil {
		if n.asked.IsZero() {
			a.network = fmt.Errorf("network state unknown")
		}
		n.last = a
		return a
	}
	a.runtime, a.network = conditions(status)
	n.mu.Lock()
	n.network = a.network
	n.mu.Unlock()
	if a.runtime == nil {
		n.asked = time.Now()
		a.handlers, a.features = abilities(status)
	}
	if name, version, err := n.Runtime.About(ctx); err == nil {
		a.name, a.version = name, version
	}
	if images, err := n.Runtime.Images(ctx); err == nil {
		a.images = images
	}
	n.last = a
	return a
}

// Network says why Pods cannot have a network now. If it was not there at the last look, the runtime is asked once more.
func (n *Node) Network(ctx context.Context) error {
	n.mu.Lock()
	err := n.network
	n.mu.Unlock()
	if err == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, lookEvery)
	defer stop()
	status, failed := n.Runtime.Status(ctx)
	if failed != nil {
		return err
	}
	if _, err = conditions(status); err == nil {
		n.Poke()
	}
	return err
}

// conditions reads what the runtime says about itself and its network.
func conditions(s *cri.StatusResponse) (runtime, network error) {
	// What is missing is shown the way upstream shows nothing.
	said := map[string]string{cri.RuntimeReady: "<nil>", cri.NetworkReady: "<nil>"}
	good := map[string]bool{}
	for _, c := range s.GetStatus().GetConditions() {
		said[c.Type] = fmt.Sprintf("%s=%t reason:%s message:%s", c.Type, c.Status, c.Reason, c.Message)
		good[c.Type] = c.Status
	}
	if !good[cri.RuntimeReady] {
		runtime = fmt.Errorf("container runtime not ready: %s", said[cri.RuntimeReady])
	}
	if !good[cri.NetworkReady] {
		network = fmt.Errorf("container runtime network not ready: %s", said[cri.NetworkReady])
	}
	return runtime, network
}

// abilities reads what the runtime and its handlers can do. The handlers are sorted, so that the same ones look the same.
func abilities(s *cri.StatusResponse) (handlers []corev1.NodeRuntimeHandler, features *corev1.NodeFeatures) {
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

// addresses are those of the status: the given ones, or the one by which the machine reaches others.
func (n *Node) addresses() ([]corev1.NodeAddress, error) {
	own := n.Config.Addresses
	if len(own) == 0 && !n.Cloud { // which one others know is for the cloud to say
		if err := n.find(); err != nil {
			return nil, fmt.Errorf("can't get ip address of node %s. error: %w", n.Name, err)
		}
		own = []netip.Addr{n.at}
	}
	var out []corev1.NodeAddress
	for _, a := range own {
		out = append(out, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	return append(out, corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.Hostname}), nil
}

// find looks for an address, unless the machine still has the one that was found before: who knows the node by it shall not
// have to learn another.
func (n *Node) find() error {
	if n.at.IsValid() && n.host.Has(n.at) {
		return nil
	}
	find := n.Find
	if find == nil {
		find = outward
	}
	found, err := find()
	if err != nil && n.at.IsValid() {
		return nil // it may come back
	}
	n.at = found
	return err
}

// outward is the address from which packets to elsewhere leave, or any that others could reach. No packet is sent.
func outward() (netip.Addr, error) {
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
