package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/internal/wait"
	"proa.dev/node/cri"
	"proa.dev/node/deviceplugin"
	"proa.dev/node/dra"
	"proa.dev/node/nodestatus"
	"proa.dev/node/pluginregistration"
	"proa.dev/node/pod"
)

// openDevices makes the managers of device plugins, of dynamic resource allocation, and of the CPU and memory topology.
func (a *Agent) openDevices() (err error) {
	if a.machine, err = a.ResourceManagers.machine(); err != nil {
		return err
	}
	if err := a.reserveCPUs(); err != nil {
		return err
	}
	a.devices, err = deviceplugin.New(deviceplugin.Config{
		Dir: filepath.Join(a.Dir, "device-plugins"), Nodes: a.machine.Nodes(), IsLive: a.mayNeedDevices, Connections: a.Connections,
		Log:           a.Log,
		Changed:       a.refreshNode,
		HealthChanged: a.wakePods,
	})
	if err != nil {
		return err
	}
	if a.claims, err = dra.New(dra.Config{Dir: a.Dir, Node: a.Name, Cluster: a.Client, HealthChanged: a.wakePods, Log: a.Log}); err != nil {
		return err
	}
	return a.openTopology()
}

// deviceCounts returns the extended resources of device plugins, for the status of the node.
func (a *Agent) deviceCounts() (d nodestatus.Devices) {
	d.Capacity, d.Allocatable, d.Removed, d.Reset = a.devices.Counts()
	return d
}

// mayNeedDevices reports whether a Pod may still need its devices: it is on this node, or is being admitted, or the sources have
// not listed all their Pods yet.
func (a *Agent) mayNeedDevices(uid types.UID) bool {
	entering, _ := a.admitting.Load().(types.UID)
	return a.isHere(uid) || uid == entering || !a.sourcesComplete.Load()
}

// releaseStale releases what Pods have held that disappeared while no agent ran. A driver that cannot be reached is tried
// again.
func (a *Agent) releaseStale(ctx context.Context) {
	if err := a.topology.ReleaseStale(a.mayNeedDevices); err != nil {
		a.Log.ErrorContext(ctx, "what Pods had that are gone cannot be taken back", "err", err)
	}
	for {
		err := a.claims.UnprepareStale(ctx, a.mayNeedDevices)
		if err == nil || ctx.Err() != nil {
			return
		}
		a.Log.WarnContext(ctx, "the claims of Pods that are gone cannot be put away; retrying", "err", err)
		if wait.Sleep(ctx, time.Minute) != nil {
			return
		}
	}
}

// runPluginRegistry runs the registration of CSI drivers, device plugins and DRA drivers, which publish themselves in the Node
// object and therefore need it to exist.
func (a *Agent) runPluginRegistry(ctx context.Context) error {
	if err := a.waitRegistered(ctx); err != nil {
		return err
	}
	if err := a.drivers.CreateCSINode(ctx); err != nil {
		return err
	}
	defer a.drivers.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := pluginregistration.Registry{Dir: filepath.Join(a.Dir, "plugins_registry"), Log: a.Log,
		Handlers: map[string]pluginregistration.Handler{
			pluginregistration.Storage: a.drivers, pluginregistration.Devices: a.devices.Handler(ctx, &wg),
			pluginregistration.Claims: a.claims,
		}}
	return r.Run(ctx)
}

// servePodResources serves the PodResources API, by which monitoring agents on this machine learn which devices containers
// have.
func (a *Agent) servePodResources(ctx context.Context) error {
	return deviceplugin.ServeResources(ctx, deviceplugin.PodResources{
		Socket: filepath.Join(a.Dir, "pod-resources", "kubelet.sock"), Pods: a.activePods, Devices: a.devices, Topology: a.topology,
		Claims: a.claims.Resources, Connections: a.Connections,
	})
}

// podDevices gives Pods their devices, CPUs and memory; it implements pod.Devices.
type podDevices struct{ *Agent }

// Prepare prepares the resource claims of a Pod.
func (g podDevices) Prepare(ctx context.Context, p *corev1.Pod) error {
	return g.claims.Prepare(ctx, p)
}

// Grant adds the devices of a container to its run. Environment variables, mounts and devices of the spec take
// precedence over those of a plugin.
func (g podDevices) Grant(ctx context.Context, p *corev1.Pod, c *corev1.Container, r *pod.Run) error {
	names, err := g.claims.CDI(p, c)
	if err != nil {
		return err
	}
	r.CDI = append(r.CDI, names...)
	d, err := g.Agent.devices.Grant(ctx, p, c)
	if err != nil || d == nil {
		return err
	}
	addGrant(r, d)
	return nil
}

func addGrant(r *pod.Run, d *deviceplugin.Grant) {
	var env []*cri.KeyValue
	for _, name := range slices.Sorted(maps.Keys(d.Env)) {
		if !slices.ContainsFunc(r.Env, func(x *cri.KeyValue) bool { return x.Key == name }) {
			env = append(env, &cri.KeyValue{Key: name, Value: []byte(d.Env[name])})
		}
	}
	r.Env = append(env, r.Env...)
	var binds []*cri.Mount
	for _, m := range d.Mounts {
		binds = append(binds, &cri.Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, Readonly: m.ReadOnly})
	}
	r.Binds = append(binds, r.Binds...)
	var devices []*cri.Device
	for _, x := range d.Devices {
		devices = append(devices, &cri.Device{HostPath: x.HostPath, ContainerPath: x.ContainerPath, Permissions: x.Permissions})
	}
	r.Devices = append(devices, r.Devices...)
	for _, name := range d.CDI {
		if !slices.Contains(r.CDI, name) {
			r.CDI = append(r.CDI, name)
		}
	}
	r.Annotations = d.Annotations
}

// Holds reports whether a Pod holds devices, claims, CPUs or memory that must be released.
func (g podDevices) Holds(uid types.UID) bool {
	return g.claims.Uses(uid) || g.Agent.devices.Has(uid) || g.topology.Has(uid)
}

// Release releases all of them. Claims are unprepared first: a driver that cannot be reached keeps the Pod on the node.
func (g podDevices) Release(ctx context.Context, uid types.UID) error {
	if err := g.claims.Unprepare(ctx, uid); err != nil {
		return err
	}
	if err := errors.Join(g.Agent.devices.Release(uid), g.topology.Release(uid)); err != nil {
		return fmt.Errorf("take back what a Pod had: %w", err)
	}
	return nil
}

// Health returns the health of a container's devices.
func (g podDevices) Health(p *corev1.Pod, c *corev1.Container) []corev1.ResourceStatus {
	return append(g.Agent.devices.Status(p.UID, c.Name), g.claims.Status(p, c)...)
}
