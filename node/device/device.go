// Package device gives the devices of plugins to containers. A plugin registers a resource and tells which devices of it there
// are and how they are; a container that asks for some of them gets them at its admission, and the plugin says what must be done
// to the container for that. Who has what is in a table that is pure, and on disk before a container starts.
//
// The package also serves the pod resources API, by which others on the node learn what containers have.
package device

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

	"proa.dev/node/topology"
)

// stopped is how long a resource is still counted after its plugin has gone: plugins are updated.
const stopped = 5 * time.Minute

// Config is what a Manager works with.
type Config struct {
	// Dir is the folder of the plugins' sockets and of what is remembered.
	Dir string
	// Nodes are the NUMA nodes of the machine.
	Nodes []int
	// Lives tells whether a Pod still needs what it has.
	Lives func(types.UID) bool
	// Changed is called when there is more or less of a resource, Health when devices of Pods got well or broke.
	Changed func()
	Health  func([]types.UID)
	Log     *slog.Logger
}

// Manager has the devices of a node.
type Manager struct {
	Config
	// turn lets one allocation go on at a time: plugins are asked in between.
	turn sync.Mutex

	mu    sync.Mutex // guards what follows
	table *table
	// links are the plugins, by resource and socket: while one is replaced there are two.
	links map[string][]*link
	fresh bool // nothing was remembered
}

// New makes a manager with what was remembered.
func New(c Config) (*Manager, error) {
	if err := os.MkdirAll(c.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("make the folder of device plugins: %w", err)
	}
	m := &Manager{Config: c, table: newTable(), links: map[string][]*link{}}
	found, err := m.load()
	m.fresh = !found
	return m, err
}

// Counts are what the status of the node says: how much of each resource there is and can be given, and which resources had a
// plugin that is gone for good. fresh says that nothing is remembered from before.
func (m *Manager) Counts() (capacity, allocatable corev1.ResourceList, gone []corev1.ResourceName, fresh bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	capacity, allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	all, lost := m.table.counts(time.Now(), stopped)
	for name, c := range all {
		capacity[corev1.ResourceName(name)] = *resource.NewQuantity(c.capacity, resource.DecimalSI)
		allocatable[corev1.ResourceName(name)] = *resource.NewQuantity(c.allocatable, resource.DecimalSI)
	}
	for _, name := range lost {
		gone = append(gone, corev1.ResourceName(name))
	}
	return capacity, allocatable, gone, m.fresh
}

// requests are what a container wants of plugins' resources.
func (m *Manager) requests(p *corev1.Pod, c *corev1.Container, near topology.Hint) (out []request) {
	for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
		q := c.Resources.Limits[name]
		if q.Value() > 0 && m.table.known(string(name)) && !claimed(p, c.Name, string(name)) {
			r := request{uid: p.UID, container: c.Name, name: string(name), n: int(q.Value()), near: near}
			r.reuse = m.reusable(p, c.Name, string(name))
			out = append(out, r)
		}
	}
	return out
}

// claimed says that a resource is given by a claim instead.
func claimed(p *corev1.Pod, container, name string) bool {
	st := p.Status.ExtendedResourceClaimStatus
	return st != nil && slices.ContainsFunc(st.RequestMappings, func(x corev1.ContainerExtendedResourceRequest) bool {
		return x.ContainerName == container && x.ResourceName == name
	})
}

// reusable are the devices of init containers of the Pod that end before a container begins, and that no container which stays
// has.
func (m *Manager) reusable(p *corev1.Pod, container, name string) (out []string) {
	var stays []string
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.Name == container {
			break
		}
		g, _ := m.table.has(p.UID, c.Name, name)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
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

// Hints are where the devices of a container could come from, by resource; see topology.Provider.
func (m *Manager) Hints(p *corev1.Pod, c *corev1.Container) map[string][]topology.Hint {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.collect()
	out := map[string][]topology.Hint{}
	for _, q := range m.requests(p, c, topology.Hint{}) {
		out[q.name] = m.table.hints(q, m.Nodes)
	}
	return out
}

// Allocate gives a container its devices, near some NUMA nodes. What it has already it keeps.
func (m *Manager) Allocate(ctx context.Context, p *corev1.Pod, c *corev1.Container, near topology.Hint) error {
	m.turn.Lock()
	defer m.turn.Unlock()
	m.mu.Lock()
	m.collect()
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

// collect takes back what Pods had that are gone.
func (m *Manager) collect() {
	if m.Lives == nil {
		return
	}
	maps.DeleteFunc(m.table.pods, func(uid types.UID, _ map[string]map[string]given) bool { return !m.Lives(uid) })
}

func (m *Manager) allocate(ctx context.Context, q request) error {
	m.mu.Lock()
	done, err := m.table.check(q)
	var c choice
	if err == nil && !done {
		c, err = m.table.choose(q)
	}
	l := m.link(q.name)
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
	g := given{IDs: ids, Nodes: map[string]topology.Mask{}, Answer: text}
	for _, id := range ids {
		if d := m.table.resources[q.name]; d != nil && d.devices[id].Nodes != 0 {
			g.Nodes[id] = d.devices[id].Nodes
		}
	}
	m.table.set(q.uid, q.container, q.name, g)
	return nil
}

// Has says that a Pod has devices.
func (m *Manager) Has(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.table.pods[uid]) > 0
}

// Forget takes back what a Pod had.
func (m *Manager) Forget(uid types.UID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, had := m.table.pods[uid]; !had {
		return nil
	}
	delete(m.table.pods, uid)
	return m.save()
}

// Grant is what must be done to a container for its devices.
type Grant struct {
	Env         map[string]string
	Mounts      []*plugins.Mount
	Devices     []*plugins.DeviceSpec
	Annotations map[string]string
	// CDI are the names of devices that the runtime knows itself.
	CDI []string
}

// Grant readies the devices of a container that is about to start, and says what to do to it. nil means nothing.
func (m *Manager) Grant(ctx context.Context, p *corev1.Pod, c *corev1.Container) (*Grant, error) {
	m.mu.Lock()
	all := m.requests(p, c, topology.Hint{})
	m.mu.Unlock()
	if len(all) == 0 {
		return nil, nil
	}
	// A container that was admitted has its devices, and keeps them when it runs again, also while their plugin is away. Only
	// after a loss of what was remembered it gets others.
	if m.lacks(all) {
		if err := m.Allocate(ctx, p, c, topology.Hint{}); err != nil {
			return nil, err
		}
	}
	g := &Grant{Env: map[string]string{}, Annotations: map[string]string{}}
	for _, q := range all {
		m.mu.Lock()
		have, _ := m.table.has(q.uid, q.container, q.name)
		l := m.link(q.name)
		m.mu.Unlock()
		if l != nil {
			if err := l.ready(ctx, have.IDs); err != nil {
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

// lacks says that a request has got nothing yet.
func (m *Manager) lacks(all []request) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(all, func(q request) bool {
		_, has := m.table.has(q.uid, q.container, q.name)
		return !has
	})
}

// add adds what one plugin wants. Of two that want the same place the first has it.
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

// Held is what containers have of plugins, at least of each resource; a node must not count as having less.
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

// Status is how the devices of a container are, for its status.
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

// link is the plugin of a resource that was there last. The caller holds the lock.
func (m *Manager) link(name string) *link {
	if all := m.links[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}
