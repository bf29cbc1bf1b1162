package device

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

	"proa.dev/node/topology"
)

// Answers is where the pod resources API gets its answers from. All but Pods may be left out.
type Answers struct {
	// Socket is where it is served.
	Socket string
	// Pods are those that run.
	Pods func() []*corev1.Pod
	// Devices are those of plugins.
	Devices *Manager
	// Topology has processors and memory.
	Topology *topology.Manager
	// Claims are the devices that a container has by claims.
	Claims func(p *corev1.Pod, c *corev1.Container) []*podresources.DynamicResource
}

// ServeResources serves the pod resources API on its socket until ctx ends.
func ServeResources(ctx context.Context, a Answers) error {
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
	if err := s.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve the pod resources API: %w", err)
	}
	return nil
}

type lister struct {
	podresources.UnimplementedPodResourcesListerServer
	a Answers
}

// List tells what the containers of all Pods have.
func (l *lister) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	out := &podresources.ListPodResourcesResponse{}
	for _, p := range l.a.Pods() {
		out.PodResources = append(out.PodResources, l.pod(p))
	}
	return out, nil
}

// Get tells what the containers of one Pod have.
func (l *lister) Get(_ context.Context, r *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
	for _, p := range l.a.Pods() {
		if p.Namespace == r.PodNamespace && p.Name == r.PodName {
			return &podresources.GetPodResourcesResponse{PodResources: l.pod(p)}, nil
		}
	}
	return nil, status.Errorf(codes.Unknown, "pod %s in namespace %s not found", r.PodName, r.PodNamespace)
}

// GetAllocatableResources tells what there is.
func (l *lister) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	out := &podresources.AllocatableResourcesResponse{}
	if l.a.Devices != nil {
		out.Devices = l.a.Devices.there()
	}
	if l.a.Topology != nil {
		cpus, memory := l.a.Topology.Givable()
		for _, id := range cpus {
			out.CpuIds = append(out.CpuIds, int64(id))
		}
		for _, node := range slices.Sorted(maps.Keys(memory)) {
			for _, kind := range slices.Sorted(maps.Keys(memory[node])) {
				out.Memory = append(out.Memory, &podresources.ContainerMemory{
					MemoryType: string(kind), Size: uint64(max(0, memory[node][kind])), Topology: places(topology.MaskOf(node)),
				})
			}
		}
	}
	return out, nil
}

// pod tells what the containers of a Pod have that stay.
func (l *lister) pod(p *corev1.Pod) *podresources.PodResources {
	out := &podresources.PodResources{Name: p.Name, Namespace: p.Namespace}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
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
		cpus, memory := l.a.Topology.Owns(p.UID, c.Name)
		for _, id := range cpus {
			out.CpuIds = append(out.CpuIds, int64(id))
		}
		for _, b := range memory {
			out.Memory = append(out.Memory, &podresources.ContainerMemory{MemoryType: string(b.Type), Size: uint64(b.Size), Topology: places(topology.MaskOf(b.Nodes...))})
		}
	}
	if l.a.Claims != nil {
		out.DynamicResources = l.a.Claims(p, c)
	}
	return out
}

func places(m topology.Mask) *podresources.TopologyInfo {
	if m == 0 {
		return nil
	}
	out := &podresources.TopologyInfo{}
	for _, id := range m.IDs() {
		out.Nodes = append(out.Nodes, &podresources.NUMANode{ID: int64(id)})
	}
	return out
}

// held is what a container has.
func (m *Manager) held(uid types.UID, container string) (out []*podresources.ContainerDevices) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.table.pods[uid][container])) {
		g := m.table.pods[uid][container][name]
		for _, id := range g.IDs {
			out = append(out, &podresources.ContainerDevices{ResourceName: name, DeviceIds: []string{id}, Topology: places(g.Nodes[id])})
		}
	}
	return out
}

// there are the devices that are well.
func (m *Manager) there() (out []*podresources.ContainerDevices) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.table.resources)) {
		devices := m.table.resources[name].devices
		for _, id := range slices.Sorted(maps.Keys(devices)) {
			if devices[id].Healthy {
				out = append(out, &podresources.ContainerDevices{ResourceName: name, DeviceIds: []string{id}, Topology: places(devices[id].Nodes)})
			}
		}
	}
	return out
}
