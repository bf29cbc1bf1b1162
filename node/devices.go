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

	"proa.dev/node/clock"
	"proa.dev/node/cri"
	"proa.dev/node/device"
	"proa.dev/node/dra"
	"proa.dev/node/nodestatus"
	"proa.dev/node/plugin"
	"proa.dev/node/pod"
)

// openDevices makes the parts that give Pods devices, and processors and memory of their own.
func (a *Agent) openDevices() (err error) {
	if a.align.machine, err = a.Align.machine(); err != nil {
		return err
	}
	if err := a.reserveCPUs(); err != nil {
		return err
	}
	a.devices, err = device.New(device.Config{
		Dir: filepath.Join(a.Dir, "device-plugins"), Nodes: a.align.machine.Nodes(), Lives: a.lives, Log: a.Log,
		Changed: func() { a.node.Poke() },
		Health:  a.wake,
	})
	if err != nil {
		return err
	}
	if a.claims, err = dra.New(dra.Config{Dir: a.Dir, Node: a.Name, Cluster: a.Client, Health: a.wake, Log: a.Log}); err != nil {
		return err
	}
	return a.openTopology()
}

// wake lets the workers of Pods look again.
func (a *Agent) wake(all []types.UID) {
	for _, uid := range all {
		a.pods.Wake(uid)
	}
}

// counts are the resources of plugins, for the status of the node.
func (a *Agent) counts() (d nodestatus.Devices) {
	d.Capacity, d.Allocatable, d.Removed, d.Reset = a.devices.Counts()
	return d
}

// lives says that a Pod may still need what it has: it is here, or about to be, or not all sources have told of their Pods.
func (a *Agent) lives(uid types.UID) bool {
	_, here := a.pods.Find(uid)
	entering, _ := a.entering.Load().(types.UID)
	return here || uid == entering || !a.complete.Load()
}

// settled takes back what Pods had that went away while nobody looked. A driver may be away just then; it is asked again.
func (a *Agent) settled(ctx context.Context) {
	if err := a.topology.Keep(a.lives); err != nil {
		a.Log.ErrorContext(ctx, "what Pods had that are gone cannot be taken back", "err", err)
	}
	for {
		err := a.claims.Keep(ctx, a.lives)
		if err == nil || ctx.Err() != nil {
			return
		}
		a.Log.WarnContext(ctx, "the claims of Pods that are gone cannot be put away; it is tried again", "err", err)
		if !clock.Sleep(ctx, time.Minute) {
			return
		}
	}
}

// plugins lets drivers of storage and devices register themselves, once the Node is there to tell of them.
func (a *Agent) plugins(ctx context.Context) error {
	if err := a.registered(ctx); err != nil {
		return err
	}
	if err := a.drivers.Announce(ctx); err != nil {
		return err
	}
	defer a.drivers.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	r := plugin.Registry{Dir: filepath.Join(a.Dir, "plugins_registry"), Log: a.Log, Handlers: map[string]plugin.Handler{
		plugin.Storage: a.drivers, plugin.Devices: a.devices.Registering(ctx, &wg), plugin.Claims: a.claims,
	}}
	return r.Run(ctx)
}

// serveResources tells others on this machine what containers have.
func (a *Agent) serveResources(ctx context.Context) error {
	return device.ServeResources(ctx, device.Answers{
		Socket: filepath.Join(a.Dir, "pod-resources", "kubelet.sock"), Pods: a.active, Devices: a.devices, Topology: a.topology, Claims: a.claims.Resources,
	})
}

// grants is what Pods get beside what everybody has; it is the pod.Devices of the agent.
type grants struct{ *Agent }

// Prepare readies what a Pod has by claims.
func (g grants) Prepare(ctx context.Context, p *corev1.Pod) error { return g.claims.Prepare(ctx, p) }

// Grant adds the devices of a container to its run. What its spec says counts more than what a plugin says.
func (g grants) Grant(ctx context.Context, p *corev1.Pod, c *corev1.Container, r *pod.Run) error {
	names, err := g.claims.CDI(p, c)
	if err != nil {
		return err
	}
	r.CDI = append(r.CDI, names...)
	d, err := g.Agent.devices.Grant(ctx, p, c)
	if err != nil || d == nil {
		return err
	}
	add(r, d)
	return nil
}

func add(r *pod.Run, d *device.Grant) {
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
	r.Notes = d.Annotations
}

// Holds says that a Pod has something to give back.
func (g grants) Holds(uid types.UID) bool {
	return g.claims.Uses(uid) || g.Agent.devices.Has(uid) || g.topology.Has(uid)
}

// Release takes everything back. What is by claims goes first: a driver that cannot be asked keeps the Pod here.
func (g grants) Release(ctx context.Context, uid types.UID) error {
	if err := g.claims.Unprepare(ctx, uid); err != nil {
		return err
	}
	if err := errors.Join(g.Agent.devices.Forget(uid), g.topology.Forget(uid)); err != nil {
		return fmt.Errorf("take back what a Pod had: %w", err)
	}
	return nil
}

// Health is how the devices of a container are.
func (g grants) Health(p *corev1.Pod, c *corev1.Container) []corev1.ResourceStatus {
	return append(g.Agent.devices.Status(p.UID, c.Name), g.claims.Status(p, c)...)
}
