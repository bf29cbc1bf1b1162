package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"proa.dev/internal/connlimit"
	"proa.dev/node/podstate"
	"proa.dev/node/topology"
)

// PodResources is what the pod resources API serves. All fields but Pods may be left out.
type PodResources struct {
	// Socket is where it is served.
	Socket string
	// Connections counts the connections of clients; nil counts none.
	Connections *connlimit.Budget
	// Pods returns the running Pods.
	Pods func() []*corev1.Pod
	// Devices are the devices of plugins.
	Devices *Manager
	// Topology has exclusive CPUs and memory.
	Topology *topology.Manager
	// Claims returns the devices that a container has by resource claims.
	Claims func(p *corev1.Pod, c *corev1.Container) []*podresources.DynamicResource
}

// ServeResources serves the pod resources API on its socket until ctx ends.
func ServeResources(ctx context.Context, a PodResources) error {
	if err := os.MkdirAll(filepath.Dir(a.Socket), 0o750); err != nil {
		return fmt.Errorf("serve the pod resources API: %w", err)
	}
	if err := os.Remove(a.Socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("serve the pod resources API: %w", err)
	}
	l, err := net.Listen("unix", a.Socket)
	if err != nil {
		return fmt.Errorf("serve the pod resources API: %w", err)
	}
	s := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(s, &lister{a: a})
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	if err := s.Serve(a.Connections.Listener(l, "pod-resources", connlimit.Local)); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve the pod resources API: %w", err)
	}
	return nil
}

type lister struct {
	podresources.UnimplementedPodResourcesListerServer
	a PodResources
}

// List returns the resources of all Pods.
func (l *lister) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	out := &podresources.ListPodResourcesResponse{}
	for _, p := range l.a.Pods() {
		out.PodResources = append(out.PodResources, l.pod(p))
	}
	return out, nil
}

// Get returns the resources of one Pod.
func (l *lister) Get(_ context.Context, r *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
	for _, p := range l.a.Pods() {
		if p.Namespace == r.PodNamespace && p.Name == r.PodName {
			return &podresources.GetPodResourcesResponse{PodResources: l.pod(p)}, nil
		}
	}
	return nil, status.Errorf(codes.Unknown, "pod %s in namespace %s not found", r.PodName, r.PodNamespace)
}

// GetAllocatableResources returns what can be allocated.
func (l *lister) GetAllocatableResources(context.Context,
	*podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	out := &podresources.AllocatableResourcesResponse{}
	if l.a.Devices != nil {
		out.Devices = l.a.Devices.healthyDevices()
	}
	if l.a.Topology != nil {
		cpus, memory := l.a.Topology.Allocatable()
		for _, id := range cpus {
			out.CpuIds = append(out.CpuIds, int64(id))
		}
		for _, node := range slices.Sorted(maps.Keys(memory)) {
			for _, kind := range slices.Sorted(maps.Keys(memory[node])) {
				out.Memory = append(out.Memory, &podresources.ContainerMemory{
					MemoryType: string(kind), Size: uint64(max(0, memory[node][kind])), Topology: numaNodes(topology.MaskOf(node)),
				})
			}
		}
	}
	return out, nil
}

// pod returns the resources of a Pod's sidecars and regular containers.
func (l *lister) pod(p *corev1.Pod) *podresources.PodResources {
	out := &podresources.PodResources{Name: p.Name, Namespace: p.Namespace}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; podstate.IsSidecar(c) {
			out.Containers = append(out.Containers, l.container(p, c))
		}
	}
	for i := range p.Spec.Containers {
		out.Containers = append(out.Containers, l.container(p, &p.Spec.Containers[i]))
	}
	return out
}

func (l *lister) container(p *corev1.Pod, c *corev1.Container) *podresources.ContainerResources {
	out := &podresources.ContainerResources{Name: c.Name}
	if l.a.Devices != nil {
		out.Devices = l.a.Devices.held(p.UID, c.Name)
	}
	if l.a.Topology != nil {
		cpus, memory := l.a.Topology.ExclusiveOf(p.UID, c.Name)
		for _, id := range cpus {
			out.CpuIds = append(out.CpuIds, int64(id))
		}
		for _, b := range memory {
			out.Memory = append(out.Memory,
				&podresources.ContainerMemory{MemoryType: string(b.Type), Size: uint64(b.Size),
					Topology: numaNodes(topology.MaskOf(b.Nodes...))})
		}
	}
	if l.a.Claims != nil {
		out.DynamicResources = l.a.Claims(p, c)
	}
	return out
}

func numaNodes(m topology.Mask) *podresources.TopologyInfo {
	if m == 0 {
		return nil
	}
	out := &podresources.TopologyInfo{}
	for _, id := range m.IDs() {
		out.Nodes = append(out.Nodes, &podresources.NUMANode{ID: int64(id)})
	}
	return out
}

// held returns the devices of a container.
func (m *Manager) held(uid types.UID, container string) (out []*podresources.ContainerDevices) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.table.pods[uid][container])) {
		g := m.table.pods[uid][container][name]
		for _, id := range g.IDs {
			out = append(out, &podresources.ContainerDevices{ResourceName: name, DeviceIds: []string{id}, Topology: numaNodes(g.Nodes[id])})
		}
	}
	return out
}

// healthyDevices returns the healthy devices.
func (m *Manager) healthyDevices() (out []*podresources.ContainerDevices) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.table.resources)) {
		devices := m.table.resources[name].devices
		for _, id := range slices.Sorted(maps.Keys(devices)) {
			if devices[id].Healthy {
				out = append(out, &podresources.ContainerDevices{ResourceName: name, DeviceIds: []string{id},
					Topology: numaNodes(devices[id].Nodes)})
			}
		}
	}
	return out
}
