package deviceplugin

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

	"proa.dev/internal/connlimit"
	"proa.dev/node/nodestatus"
	"proa.dev/node/pluginregistration"
	"proa.dev/node/topology"
)

// Timeouts of plugins.
const (
	dialTimeout     = 10 * time.Second
	preStartTimeout = plugins.KubeletPreStartContainerRPCTimeoutInSecs * time.Second
	// allocateTimeout is more than any plugin needs: meanwhile no other Pod is admitted.
	allocateTimeout = 30 * time.Second
)

// maxDevices limits how many devices a plugin may have.
const maxDevices = 1 << 16

// pluginConn is the connection to a registered plugin.
type pluginConn struct {
	resource, socket string
	conn             *grpc.ClientConn
	client           plugins.DevicePluginClient
	options          *plugins.DevicePluginOptions
}

// registrationServer is the gRPC service at which plugins register. It has no other methods than those of the protocol.
type registrationServer struct {
	plugins.UnimplementedRegistrationServer
	m    *Manager
	life context.Context // of the agent: plugins outlive their call
	wg   *sync.WaitGroup
}

// Run lets plugins register until ctx ends. Sockets of earlier plugins are removed, which tells the plugins to register
// again.
func (m *Manager) Run(ctx context.Context) error {
	if err := m.removeSockets(); err != nil {
		return err
	}
	l, err := net.Listen("unix", filepath.Join(m.Dir, "kubelet.sock"))
	if err != nil {
		return fmt.Errorf("let device plugins register: %w", err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := grpc.NewServer()
	plugins.RegisterRegistrationServer(s, &registrationServer{m: m, life: ctx, wg: &wg})
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	if err := s.Serve(m.Connections.Listener(l, "device-plugins", connlimit.Local)); err != nil && ctx.Err() == nil {
		return fmt.Errorf("let device plugins register: %w", err)
	}
	return nil
}

// removeSockets removes the sockets.
func (m *Manager) removeSockets() error {
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

// Register registers a plugin.
func (d *registrationServer) Register(ctx context.Context, r *plugins.RegisterRequest) (*plugins.Empty, error) {
	err := d.m.checkRegistration(r.Version, r.ResourceName, r.Endpoint)
	if err == nil {
		err = d.m.connect(ctx, d.life, d.wg, r.ResourceName, filepath.Join(d.m.Dir, r.Endpoint))
	}
	if err != nil {
		d.m.Log.Error("a device plugin was rejected", "resource", r.ResourceName, "err", err)
		return nil, err
	}
	return &plugins.Empty{}, nil
}

// checkRegistration checks a registration.
func (m *Manager) checkRegistration(version, resource, endpoint string) error {
	switch {
	case version != plugins.Version:
		return fmt.Errorf("requested API version %q is not supported by kubelet. Supported versions are %q", version, plugins.SupportedVersions)
	case !nodestatus.IsExtended(corev1.ResourceName(resource)):
		return fmt.Errorf("the ResourceName %q is invalid", resource)
	case endpoint == "" || strings.ContainsAny(endpoint, "/\x00"):
		return fmt.Errorf("the endpoint %q is no name of a socket in the folder of device plugins", endpoint)
	}
	return nil
}

// Handler returns the handler of device plugins that are discovered by their socket. It lives as long as ctx.
func (m *Manager) Handler(ctx context.Context, wg *sync.WaitGroup) pluginregistration.Handler {
	return &handler{m, ctx, wg}
}

type handler struct {
	m    *Manager
	life context.Context // of the agent
	wg   *sync.WaitGroup
}

// Register registers a plugin.
func (h *handler) Register(ctx context.Context, i pluginregistration.Info) error {
	if !slices.Contains(i.Versions, plugins.Version) {
		return fmt.Errorf("manifest version, %q, is not among supported versions %q", i.Versions, plugins.SupportedVersions)
	}
	if !nodestatus.IsExtended(corev1.ResourceName(i.Name)) {
		return fmt.Errorf("invalid name of device plugin socket: %q", i.Name)
	}
	return h.m.connect(ctx, h.life, h.wg, i.Name, i.Endpoint)
}

// Deregister removes a plugin.
func (h *handler) Deregister(_ context.Context, name string) {
	h.m.mu.Lock()
	l := h.m.plugin(name)
	h.m.mu.Unlock()
	if l != nil {
		l.conn.Close() // its watch ends, which removes the plugin
	}
}

// connect connects to a plugin and follows its devices.
func (m *Manager) connect(ctx, life context.Context, wg *sync.WaitGroup, resource, socket string) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	l := &pluginConn{resource: resource, socket: socket, conn: conn, client: plugins.NewDevicePluginClient(conn)}
	ctx, stop := context.WithTimeout(ctx, dialTimeout)
	defer stop()
	if l.options, err = l.client.GetDevicePluginOptions(ctx, &plugins.Empty{}, grpc.WaitForReady(true)); err != nil {
		conn.Close()
		return fmt.Errorf("failed to get device plugin options: %w", err)
	}
	m.mu.Lock()
	m.plugins[resource] = append(m.plugins[resource], l)
	m.mu.Unlock()
	m.Log.Info("a device plugin has registered", "resource", resource, "socket", socket)
	wg.Go(func() { m.follow(life, l) })
	return nil
}

// follow follows the devices of a plugin until its connection ends.
func (m *Manager) follow(ctx context.Context, l *pluginConn) {
	err := m.listen(ctx, l)
	l.conn.Close()
	m.mu.Lock()
	m.plugins[l.resource] = slices.DeleteFunc(m.plugins[l.resource], func(x *pluginConn) bool { return x == l })
	last := len(m.plugins[l.resource]) == 0
	if last && ctx.Err() == nil {
		delete(m.plugins, l.resource)
		m.table.pluginLost(l.resource, time.Now())
	}
	m.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	m.Log.Warn("a device plugin has disappeared", "resource", l.resource, "err", err)
	if last {
		m.changed()
		// If it does not come back, the resource is removed.
		time.AfterFunc(removedAfter+time.Second, func() {
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

func (m *Manager) listen(ctx context.Context, l *pluginConn) error {
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
			m.Log.Error("the state of the devices cannot be stored", "err", err)
		}
		m.changed()
		if len(pods) > 0 && m.HealthChanged != nil {
			m.HealthChanged(pods)
		}
	}
}

// prefer asks the plugin which devices it prefers, if it supports that.
func (l *pluginConn) prefer(ctx context.Context, c choice, n int) ([]string, error) {
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
	ctx, stop := context.WithTimeout(ctx, allocateTimeout)
	defer stop()
	r, err := l.client.GetPreferredAllocation(ctx,
		&plugins.PreferredAllocationRequest{ContainerRequests: []*plugins.ContainerPreferredAllocationRequest{{
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

// allocate tells the plugin that a container gets devices, and returns how it must be configured.
func (l *pluginConn) allocate(ctx context.Context, ids []string) (*plugins.ContainerAllocateResponse, error) {
	ctx, stop := context.WithTimeout(ctx, allocateTimeout)
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

// preStart tells the plugin that a container is about to start, if it wants to know.
func (l *pluginConn) preStart(ctx context.Context, ids []string) error {
	if !l.options.GetPreStartRequired() {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, preStartTimeout)
	defer stop()
	if _, err := l.client.PreStartContainer(ctx, &plugins.PreStartContainerRequest{DevicesIds: ids}); err != nil {
		return fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
	}
	return nil
}
