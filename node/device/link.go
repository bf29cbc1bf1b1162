package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	plugins "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"proa.dev/node/nodestatus"
	"proa.dev/node/plugin"
	"proa.dev/node/topology"
)

// How long a plugin may take.
const (
	dialTime  = 10 * time.Second
	readyTime = plugins.KubeletPreStartContainerRPCTimeoutInSecs * time.Second
	// giveTime is more than any plugin needs: while one thinks, no other Pod is admitted.
	giveTime = 30 * time.Second
)

// maxDevices is how many devices a plugin may have at once.
const maxDevices = 1 << 16

// link is a plugin that has registered.
type link struct {
	resource, socket string
	conn             *grpc.ClientConn
	client           plugins.DevicePluginClient
	options          *plugins.DevicePluginOptions
}

// door is the service at which plugins register. It has no other methods than the protocol's.
type door struct {
	plugins.UnimplementedRegistrationServer
	m    *Manager
	life context.Context // of the agent: plugins stay when their call has ended
	wg   *sync.WaitGroup
}

// Run lets plugins register until ctx ends. Sockets of plugins from before are removed, which tells their owners to register
// again.
func (m *Manager) Run(ctx context.Context) error {
	if err := m.sweep(); err != nil {
		return err
	}
	l, err := net.Listen("unix", filepath.Join(m.Dir, "kubelet.sock"))
	if err != nil {
		return fmt.Errorf("let device plugins register: %w", err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	s := grpc.NewServer()
	plugins.RegisterRegistrationServer(s, &door{m: m, life: ctx, wg: &wg})
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	if err := s.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("let device plugins register: %w", err)
	}
	return nil
}

// sweep removes sockets.
func (m *Manager) sweep() error {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSocket != 0 {
			if err := os.Remove(filepath.Join(m.Dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// Register takes a plugin.
func (d *door) Register(ctx context.Context, r *plugins.RegisterRequest) (*plugins.Empty, error) {
	err := d.m.accept(r.Version, r.ResourceName, r.Endpoint)
	if err == nil {
		err = d.m.connect(ctx, d.life, d.wg, r.ResourceName, filepath.Join(d.m.Dir, r.Endpoint))
	}
	if err != nil {
		d.m.Log.Error("a device plugin was refused", "resource", r.ResourceName, "err", err)
		return nil, err
	}
	return &plugins.Empty{}, nil
}

// accept says whether somebody may register like that.
func (m *Manager) accept(version, resource, endpoint string) error {
	switch {
	case version != plugins.Version:
		return fmt.Errorf("requested API version %q is not supported by kubelet. Supported versions are %q", version, plugins.SupportedVersions)
	case !nodestatus.Extended(corev1.ResourceName(resource)):
		return fmt.Errorf("the ResourceName %q is invalid", resource)
	case endpoint == "" || strings.ContainsAny(endpoint, "/\x00"):
		return fmt.Errorf("the endpoint %q is no name of a socket in the folder of device plugins", endpoint)
	}
	return nil
}

// Registering is the handler of device plugins that are found by their socket. It lives as long as ctx.
func (m *Manager) Registering(ctx context.Context, wg *sync.WaitGroup) plugin.Handler {
	return &handler{m, ctx, wg}
}

type handler struct {
	m    *Manager
	life context.Context // of the agent
	wg   *sync.WaitGroup
}

// Register takes a plugin.
func (h *handler) Register(ctx context.Context, i plugin.Info) error {
	if !slices.Contains(i.Versions, plugins.Version) {
		return fmt.Errorf("manifest version, %q, is not among supported versions %q", i.Versions, plugins.SupportedVersions)
	}
	if !nodestatus.Extended(corev1.ResourceName(i.Name)) {
		return fmt.Errorf("invalid name of device plugin socket: %q", i.Name)
	}
	return h.m.connect(ctx, h.life, h.wg, i.Name, i.Endpoint)
}

// Deregister forgets a plugin.
func (h *handler) Deregister(_ context.Context, name string) {
	h.m.mu.Lock()
	l := h.m.link(name)
	h.m.mu.Unlock()
	if l != nil {
		l.conn.Close() // its watch ends, and with it the plugin
	}
}

// connect calls a plugin back and follows it.
func (m *Manager) connect(ctx, life context.Context, wg *sync.WaitGroup, resource, socket string) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	l := &link{resource: resource, socket: socket, conn: conn, client: plugins.NewDevicePluginClient(conn)}
	ctx, stop := context.WithTimeout(ctx, dialTime)
	defer stop()
	if l.options, err = l.client.GetDevicePluginOptions(ctx, &plugins.Empty{}, grpc.WaitForReady(true)); err != nil {
		conn.Close()
		return fmt.Errorf("failed to get device plugin options: %w", err)
	}
	m.mu.Lock()
	m.links[resource] = append(m.links[resource], l)
	m.mu.Unlock()
	m.Log.Info("a device plugin has registered", "resource", resource, "socket", socket)
	wg.Go(func() { m.follow(life, l) })
	return nil
}

// follow takes what a plugin says about its devices until it goes.
func (m *Manager) follow(ctx context.Context, l *link) {
	err := m.listen(ctx, l)
	l.conn.Close()
	m.mu.Lock()
	m.links[l.resource] = slices.DeleteFunc(m.links[l.resource], func(x *link) bool { return x == l })
	last := len(m.links[l.resource]) == 0
	if last && ctx.Err() == nil {
		delete(m.links, l.resource)
		m.table.lose(l.resource, time.Now())
	}
	m.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	m.Log.Warn("a device plugin has gone", "resource", l.resource, "err", err)
	if last {
		m.changed()
		// When it does not come back, the resource goes too.
		time.AfterFunc(stopped+time.Second, func() {
			if ctx.Err() == nil {
				m.changed()
			}
		})
	}
}

func (m *Manager) changed() {
	if m.Changed != nil {
		m.Changed()
	}
}

func (m *Manager) listen(ctx context.Context, l *link) error {
	stream, err := l.client.ListAndWatch(ctx, &plugins.Empty{})
	if err != nil {
		return err
	}
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if len(r.Devices) > maxDevices {
			return fmt.Errorf("%d devices are too many", len(r.Devices))
		}
		var now []Device
		for _, d := range r.Devices {
			x := Device{ID: d.ID, Healthy: d.Health == plugins.Healthy}
			for _, n := range d.GetTopology().GetNodes() {
				x.Nodes |= topology.MaskOf(int(n.ID))
			}
			now = append(now, x)
		}
		m.mu.Lock()
		pods := m.table.update(l.resource, now)
		err = m.save()
		m.mu.Unlock()
		if err != nil {
			m.Log.Error("the devices cannot be remembered", "err", err)
		}
		m.changed()
		if len(pods) > 0 && m.Health != nil {
			m.Health(pods)
		}
	}
}

// prefer asks the plugin which devices go well together, if it has an opinion.
func (l *link) prefer(ctx context.Context, c choice, n int) ([]string, error) {
	if !l.options.GetGetPreferredAllocationAvailable() || len(c.got) == n {
		return nil, nil
	}
	available := slices.Concat(c.from...)
	must := c.got
	if near := c.from[0]; len(near) > n-len(c.got) {
		available = near
	} else {
		must = slices.Concat(c.got, near)
	}
	if len(must) >= n {
		return nil, nil
	}
	ctx, stop := context.WithTimeout(ctx, giveTime)
	defer stop()
	r, err := l.client.GetPreferredAllocation(ctx, &plugins.PreferredAllocationRequest{ContainerRequests: []*plugins.ContainerPreferredAllocationRequest{{
		AvailableDeviceIDs: slices.Concat(c.got, available), MustIncludeDeviceIDs: must, AllocationSize: int32(n),
	}}})
	if err != nil {
		return nil, fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %w", err)
	}
	if len(r.ContainerResponses) == 0 {
		return nil, nil
	}
	return r.ContainerResponses[0].DeviceIDs, nil
}

// allocate tells the plugin that a container gets devices, and returns what must be done to it.
func (l *link) allocate(ctx context.Context, ids []string) (*plugins.ContainerAllocateResponse, error) {
	ctx, stop := context.WithTimeout(ctx, giveTime)
	defer stop()
	r, err := l.client.Allocate(ctx, &plugins.AllocateRequest{ContainerRequests: []*plugins.ContainerAllocateRequest{{DevicesIds: ids}}})
	if err != nil {
		return nil, err
	}
	if len(r.ContainerResponses) == 0 {
		return nil, fmt.Errorf("no containers return in allocation response %v", r)
	}
	return r.ContainerResponses[0], nil
}

// ready tells the plugin that a container is about to start, if it wants to know.
func (l *link) ready(ctx context.Context, ids []string) error {
	if !l.options.GetPreStartRequired() {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, readyTime)
	defer stop()
	if _, err := l.client.PreStartContainer(ctx, &plugins.PreStartContainerRequest{DevicesIds: ids}); err != nil {
		return fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
	}
	return nil
}
