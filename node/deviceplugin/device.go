// Package deviceplugin allocates the devices of device plugins to containers. A plugin registers a resource and lists
// its devices and their health; a container that requests some of them gets them during the admission of its Pod, and
// the plugin says how the container must be configured for that. The allocations are in a table without I/O, and are
// stored on disk before a container starts.
//
// The package also serves the pod resources API, by which monitoring agents on the node learn which devices containers
// have.
package deviceplugin

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	plugins "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"google.golang.org/protobuf/proto"

	"proa.dev/internal/connlimit"
	"proa.dev/kinds/lib/quantity"
	"proa.dev/node/podstate"
	"proa.dev/node/topology"
)

// removedAfter is how long a resource is still counted after its plugin has disappeared: plugins are updated.
const removedAfter = 5 * time.Minute

// Config is what a Manager needs.
type Config struct {
	// Dir is the folder of the plugins' sockets and of the state.
	Dir string
	// Nodes are the NUMA nodes of the machine.
	Nodes []int
	// IsLive reports whether a Pod still needs its devices.
	IsLive func(types.UID) bool
	// Changed is called when the amount of a resource has changed, Health when the health of devices of Pods has
	// changed.
	Changed       func()
	HealthChanged func([]types.UID)
	// Connections counts the connections of plugins; nil counts none.
	Connections *connlimit.Budget
	Log         *slog.Logger
}

// Manager is the device manager of a node.
type Manager struct {
	Config
	// allocating serializes allocations: plugins are called without holding mu.
	allocating sync.Mutex

	mu    sync.Mutex // guards what follows
	table *table
	// plugins are the plugins by resource: while one is replaced there are two.
	plugins map[string][]*pluginConn
	noState bool // there was no stored state
}

// New makes a manager with the stored state.
func New(c Config) (*Manager, error) {
	if err := os.MkdirAll(c.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the folder of device plugins: %w", err)
	}
	m := &Manager{Config: c, table: newTable(), plugins: map[string][]*pluginConn{}}
	found, err := m.load()
	m.noState = !found
	return m, err
}

// Counts returns the amounts for the status of the node: capacity and allocatable of each resource, and which resources
// had a plugin that has disappeared for good. noState reports that there was no stored state.
func (m *Manager) Counts() (capacity, allocatable corev1.ResourceList, removed []corev1.ResourceName, noState bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	capacity, allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	all, removedNames := m.table.counts(time.Now(), removedAfter)
	for name, c := range all {
		capacity[corev1.ResourceName(name)] = *resource.NewQuantity(c.capacity, resource.DecimalSI)
		allocatable[corev1.ResourceName(name)] = *resource.NewQuantity(c.allocatable, resource.DecimalSI)
	}
	for _, name := range removedNames {
		removed = append(removed, corev1.ResourceName(name))
	}
	return capacity, allocatable, removed, m.noState
}

// requests returns what a container requests of plugins' resources.
func (m *Manager) requests(p *corev1.Pod, c *corev1.Container, near topology.Hint) (out []request) {
	for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
		q := c.Resources.Limits[name]
		if quantity.Value(&q) > 0 && m.table.known(string(name)) && !claimed(p, c.Name, string(name)) {
			r := request{uid: p.UID, container: c.Name, name: string(name), n: int(quantity.Value(&q)), near: near}
			r.reuse = m.reusable(p, c.Name, string(name))
			out = append(out, r)
		}
	}
	return out
}

// claimed reports whether a resource is provided by a resource claim instead.
func claimed(p *corev1.Pod, container, name string) bool {
	st := p.Status.ExtendedResourceClaimStatus
	return st != nil && slices.ContainsFunc(st.RequestMappings, func(x corev1.ContainerExtendedResourceRequest) bool {
		return x.ContainerName == container && x.ResourceName == name
	})
}

// reusable returns the devices of init containers of the Pod that end before a container starts, without those that a
// container keeps.
func (m *Manager) reusable(p *corev1.Pod, container, name string) (out []string) {
	var stays []string
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.Name == container {
			break
		}
		g, _ := m.table.has(p.UID, c.Name, name)
		if podstate.IsSidecar(c) {
			stays = append(stays, g.IDs...)
		} else {
			out = append(out, g.IDs...)
		}
	}
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; c.Name != container {
			g, _ := m.table.has(p.UID, c.Name, name)
			stays = append(stays, g.IDs...)
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(id string) bool { return slices.Contains(stays, id) })
}

// Hints returns the NUMA nodes from which the devices of a container could come, by resource; see topology.Provider.
func (m *Manager) Hints(p *corev1.Pod, c *corev1.Container) map[string][]topology.Hint {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.releaseStale()
	out := map[string][]topology.Hint{}
	for _, q := range m.requests(p, c, topology.Hint{}) {
		out[q.name] = m.table.hints(q, m.Nodes)
	}
	return out
}

// Allocate allocates the devices of a container, near some NUMA nodes. Existing allocations stay.
func (m *Manager) Allocate(ctx context.Context, p *corev1.Pod, c *corev1.Container, near topology.Hint) error {
	m.allocating.Lock()
	defer m.allocating.Unlock()
	m.mu.Lock()
	m.releaseStale()
	all := m.requests(p, c, near)
	m.mu.Unlock()
	for _, q := range all {
		if err := m.allocate(ctx, q); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.save()
}

// releaseStale releases the devices of Pods that do not live any more.
func (m *Manager) releaseStale() {
	if m.IsLive == nil {
		return
	}
	maps.DeleteFunc(m.table.pods, func(uid types.UID, _ map[string]map[string]allocation) bool { return !m.IsLive(uid) })
}

func (m *Manager) allocate(ctx context.Context, q request) error {
	m.mu.Lock()
	done, err := m.table.check(q)
	var c choice
	if err == nil && !done {
		c, err = m.table.choose(q)
	}
	l := m.plugin(q.name)
	m.mu.Unlock()
	if err != nil || done {
		return err
	}
	if l == nil {
		return fmt.Errorf("unknown Device Plugin %s", q.name)
	}
	preferred, err := l.prefer(ctx, c, q.n)
	if err != nil {
		return err
	}
	ids := c.finish(q.n, preferred)
	answer, err := l.allocate(ctx, ids)
	if err != nil {
		return err
	}
	text, err := proto.Marshal(answer)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	g := allocation{IDs: ids, Nodes: map[string]topology.Mask{}, Answer: text}
	for _, id := range ids {
		if d := m.table.resources[q.name]; d != nil && d.devices[id].Nodes != 0 {
			g.Nodes[id] = d.devices[id].Nodes
		}
	}
	m.table.set(q.uid, q.container, q.name, g)
	return nil
}

// Has reports whether a Pod has devices.
func (m *Manager) Has(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.table.pods[uid]) > 0
}

// Release releases the devices of a Pod.
func (m *Manager) Release(uid types.UID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, had := m.table.pods[uid]; !had {
		return nil
	}
	delete(m.table.pods, uid)
	return m.save()
}

// Grant is how a container must be configured for its devices.
type Grant struct {
	Env         map[string]string
	Mounts      []*plugins.Mount
	Devices     []*plugins.DeviceSpec
	Annotations map[string]string
	// CDI are the names of CDI devices, which the runtime resolves itself.
	CDI []string
}

// Grant prepares the devices of a container that is about to start, and returns its configuration; nil if it has no
// devices.
func (m *Manager) Grant(ctx context.Context, p *corev1.Pod, c *corev1.Container) (*Grant, error) {
	m.mu.Lock()
	all := m.requests(p, c, topology.Hint{})
	m.mu.Unlock()
	if len(all) == 0 {
		return nil, nil
	}
	// A container that was admitted has its devices, and keeps them when it is restarted, also while their plugin is
	// away. Only if the state was lost it gets others.
	if m.hasMissing(all) {
		if err := m.Allocate(ctx, p, c, topology.Hint{}); err != nil {
			return nil, err
		}
	}
	g := &Grant{Env: map[string]string{}, Annotations: map[string]string{}}
	for _, q := range all {
		m.mu.Lock()
		have, _ := m.table.has(q.uid, q.container, q.name)
		l := m.plugin(q.name)
		m.mu.Unlock()
		if l != nil {
			if err := l.preStart(ctx, have.IDs); err != nil {
				return nil, err
			}
		}
		var answer plugins.ContainerAllocateResponse
		if err := proto.Unmarshal(have.Answer, &answer); err != nil {
			return nil, fmt.Errorf("what the plugin of %s said makes no sense any more: %w", q.name, err)
		}
		g.add(&answer)
	}
	return g, nil
}

// hasMissing reports whether a request has no allocation yet.
func (m *Manager) hasMissing(all []request) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(all, func(q request) bool {
		_, has := m.table.has(q.uid, q.container, q.name)
		return !has
	})
}

// add adds the configuration of one plugin. If two want the same path or name, the first one has it.
func (g *Grant) add(a *plugins.ContainerAllocateResponse) {
	for _, x := range []struct{ from, into map[string]string }{{a.Envs, g.Env}, {a.Annotations, g.Annotations}} {
		for k, v := range x.from {
			if _, has := x.into[k]; !has {
				x.into[k] = v
			}
		}
	}
	for _, d := range a.Devices {
		if !slices.ContainsFunc(g.Devices, func(x *plugins.DeviceSpec) bool { return x.ContainerPath == d.ContainerPath }) {
			g.Devices = append(g.Devices, d)
		}
	}
	for _, d := range a.Mounts {
		if !slices.ContainsFunc(g.Mounts, func(x *plugins.Mount) bool { return x.ContainerPath == d.ContainerPath }) {
			g.Mounts = append(g.Mounts, d)
		}
	}
	for _, d := range a.CdiDevices {
		if !slices.Contains(g.CDI, d.Name) {
			g.CDI = append(g.CDI, d.Name)
		}
	}
}

// Held returns how many devices of each resource containers have; the node must not count as having less.
func (m *Manager) Held() corev1.ResourceList {
	m.mu.Lock()
	defer m.mu.Unlock()
	sums := map[string]int64{}
	for _, containers := range m.table.pods {
		for _, resources := range containers {
			for name := range resources {
				sums[name] = int64(len(m.table.taken(name)))
			}
		}
	}
	out := corev1.ResourceList{}
	for name, n := range sums {
		out[corev1.ResourceName(name)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return out
}

// Status returns the health of a container's devices, for its status.
func (m *Manager) Status(uid types.UID, container string) (out []corev1.ResourceStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.table.pods[uid][container])) {
		st := corev1.ResourceStatus{Name: corev1.ResourceName(name)}
		for _, id := range m.table.pods[uid][container][name].IDs {
			health := corev1.ResourceHealthStatusUnknown
			if r := m.table.resources[name]; r != nil {
				if d, known := r.devices[id]; known && d.Healthy {
					health = corev1.ResourceHealthStatusHealthy
				} else if known {
					health = corev1.ResourceHealthStatusUnhealthy
				}
			}
			st.Resources = append(st.Resources, corev1.ResourceHealth{ResourceID: corev1.ResourceID(id), Health: health})
		}
		out = append(out, st)
	}
	return out
}

// plugin returns the plugin of a resource that registered last. The caller holds the lock.
func (m *Manager) plugin(name string) *pluginConn {
	if all := m.plugins[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}
