package deviceplugin

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/topology"
)

// Device is one device of a plugin.
type Device struct {
	ID      string
	Healthy bool
	// Nodes are the NUMA nodes that it is near; 0 if that does not matter.
	Nodes topology.Mask
}

// resourceDevices is the devices of one resource.
type resourceDevices struct {
	devices map[string]Device
	// since is when its plugin disappeared; zero while it is connected.
	since time.Time
}

// allocation is what a container has of one resource.
type allocation struct {
	IDs []string `json:"ids"`
	// Nodes are the NUMA nodes of each device.
	Nodes map[string]topology.Mask `json:"nodes,omitempty"`
	// Answer is the plugin's response to the allocation, as an encoded message.
	Answer []byte `json:"answer,omitempty"`
}

// table holds the devices and their allocation. It does no I/O, and time is passed in.
type table struct {
	resources map[string]*resourceDevices
	pods      map[types.UID]map[string]map[string]allocation // by container and resource
}

func newTable() *table {
	return &table{resources: map[string]*resourceDevices{}, pods: map[types.UID]map[string]map[string]allocation{}}
}

// known reports whether a resource is, or was, one of a plugin.
func (t *table) known(name string) bool {
	if t.resources[name] != nil {
		return true
	}
	for _, containers := range t.pods {
		for _, resources := range containers {
			if _, has := resources[name]; has {
				return true
			}
		}
	}
	return false
}

// update replaces the devices of a plugin, and returns the Pods whose devices have changed.
func (t *table) update(name string, now []Device) []types.UID {
	r := &resourceDevices{devices: map[string]Device{}}
	before := t.resources[name]
	t.resources[name] = r
	changed := map[string]bool{}
	for _, d := range now {
		r.devices[d.ID] = d
		if before == nil || before.devices[d.ID].Healthy != d.Healthy {
			changed[d.ID] = true
		}
	}
	if before != nil {
		for id := range before.devices {
			if _, still := r.devices[id]; !still {
				changed[id] = true
			}
		}
	}
	var out []types.UID
	for uid, containers := range t.pods {
		for _, resources := range containers {
			if slices.ContainsFunc(resources[name].IDs, func(id string) bool { return changed[id] }) && !slices.Contains(out, uid) {
				out = append(out, uid)
			}
		}
	}
	slices.Sort(out)
	return out
}

// pluginLost records that the plugin of a resource has disappeared: its devices cannot be allocated.
func (t *table) pluginLost(name string, now time.Time) {
	r := t.resources[name]
	if r == nil {
		return
	}
	r.since = now
	for id, d := range r.devices {
		d.Healthy = false
		r.devices[id] = d
	}
}

// taken returns the devices of a resource that containers have.
func (t *table) taken(name string) map[string]bool {
	out := map[string]bool{}
	for _, containers := range t.pods {
		for _, resources := range containers {
			for _, id := range resources[name].IDs {
				out[id] = true
			}
		}
	}
	return out
}

// has returns what a container has of a resource.
func (t *table) has(uid types.UID, container, name string) (allocation, bool) {
	g, ok := t.pods[uid][container][name]
	return g, ok
}

// set records what a container has of a resource.
func (t *table) set(uid types.UID, container, name string, g allocation) {
	if t.pods[uid] == nil {
		t.pods[uid] = map[string]map[string]allocation{}
	}
	if t.pods[uid][container] == nil {
		t.pods[uid][container] = map[string]allocation{}
	}
	t.pods[uid][container][name] = g
}

// request is what a container requests of a resource.
type request struct {
	uid             types.UID
	container, name string
	n               int
	// reuse are devices of init containers of the Pod that will have ended.
	reuse []string
	near  topology.Hint
}

// check validates a request. done reports that the container has its devices already.
func (t *table) check(q request) (done bool, err error) {
	have, has := t.has(q.uid, q.container, q.name)
	if has && len(have.IDs) != q.n {
		return false, fmt.Errorf("pod %q container %q changed request for resource %q from %d to %d", q.uid, q.container, q.name,
			len(have.IDs), q.n)
	}
	r := t.resources[q.name]
	if r == nil {
		return false, fmt.Errorf("cannot allocate unregistered device %s", q.name)
	}
	healthy := 0
	for _, d := range r.devices {
		if d.Healthy {
			healthy++
		}
	}
	switch {
	case healthy == 0:
		return false, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", q.name)
	case slices.ContainsFunc(have.IDs, func(id string) bool { return !r.devices[id].Healthy }):
		return false, fmt.Errorf("previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", q.name)
	}
	return has, nil
}

// choice is a request that is partly satisfied.
type choice struct {
	got []string
	// from are the devices that the rest can come from, the nearest group first.
	from [][]string
}

// choose selects devices. What is left to decide is in from: the plugin may have a preference.
func (t *table) choose(q request) (choice, error) {
	r := t.resources[q.name]
	var c choice
	for _, id := range q.reuse {
		if len(c.got) < q.n && r.devices[id].Healthy {
			c.got = append(c.got, id)
		}
	}
	if len(c.got) == q.n {
		return c, nil
	}
	taken := t.taken(q.name)
	var near, far, anywhere []string
	for _, id := range slices.Sorted(maps.Keys(r.devices)) {
		d := r.devices[id]
		switch {
		case !d.Healthy || taken[id]:
		case q.near.Nodes == 0 || d.Nodes == 0:
			anywhere = append(anywhere, id)
		case d.Nodes&q.near.Nodes != 0:
			near = append(near, id)
		default:
			far = append(far, id)
		}
	}
	if left, available := q.n-len(c.got), len(near)+len(far)+len(anywhere); available < left {
		return choice{}, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", q.name, left, available)
	}
	// Devices without NUMA affinity are the last choice, unless no node is preferred.
	c.from = [][]string{near, far, anywhere}
	return c, nil
}

// finish completes a request: group by group, first the devices that the plugin prefers, then the others.
func (c *choice) finish(n int, preferred []string) []string {
	out := slices.Clone(c.got)
	add := func(id string) {
		if len(out) < n && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	all := slices.Concat(c.from...)
	// If the nearest group has more than enough, the preference counts within it; otherwise after that group.
	if len(c.from) > 0 && len(c.from[0]) <= n-len(c.got) {
		for _, id := range c.from[0] {
			add(id)
		}
	} else if len(c.from) > 0 && len(c.from[0]) > 0 {
		all = c.from[0]
	}
	for _, id := range preferred {
		if slices.Contains(all, id) {
			add(id)
		}
	}
	for _, id := range slices.Concat(c.from...) {
		add(id)
	}
	slices.Sort(out)
	return out
}

// hints returns the sets of NUMA nodes from which a request could be satisfied; nil if any node will do.
func (t *table) hints(q request, nodes []int) []topology.Hint {
	r := t.resources[q.name]
	if r == nil {
		return []topology.Hint{}
	}
	placed := false
	for _, d := range r.devices {
		placed = placed || d.Nodes != 0
	}
	if !placed {
		return nil
	}
	taken := t.taken(q.name)
	mine := slices.Clone(q.reuse)
	have, has := t.has(q.uid, q.container, q.name)
	if has {
		mine = have.IDs
	}
	least := 1 << 16
	out := []topology.Hint{}
	for _, m := range topology.Masks(nodes) {
		all, free := 0, 0
		for id, d := range r.devices {
			in := d.Nodes == 0 || d.Nodes&m != 0
			if in && d.Healthy {
				all++
			}
			if in && d.Healthy && (slices.Contains(mine, id) || !has && !taken[id]) {
				free++
			}
		}
		if all >= q.n {
			least = min(least, m.Len())
		}
		if free >= q.n {
			out = append(out, topology.Hint{Nodes: m})
		}
	}
	for i := range out {
		out[i].Preferred = out[i].Nodes.Len() == least
	}
	return out
}

// count is capacity and allocatable of a resource.
type count struct{ capacity, allocatable int64 }

// counts returns the amounts of resources, and the names of those whose plugin has been away for longer than keep.
func (t *table) counts(now time.Time, keep time.Duration) (out map[string]count, removed []string) {
	out = map[string]count{}
	for name, r := range t.resources {
		if !r.since.IsZero() && now.Sub(r.since) > keep {
			removed = append(removed, name)
			continue
		}
		var c count
		for _, d := range r.devices {
			c.capacity++
			if d.Healthy {
				c.allocatable++
			}
		}
		out[name] = c
	}
	slices.Sort(removed)
	return out, removed
}
