package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/admission"
	"proa.dev/node/agentmetrics"
	"proa.dev/node/cgroup"
	"proa.dev/node/container"
	"proa.dev/node/cri"
	"proa.dev/node/csi"
	"proa.dev/node/eviction"
	"proa.dev/node/image"
	"proa.dev/node/interruption"
	"proa.dev/node/lifecyclehook"
	"proa.dev/node/nodestatus"
	"proa.dev/node/objects"
	"proa.dev/node/pod"
	"proa.dev/node/podsource"
	"proa.dev/node/podtrace"
	"proa.dev/node/probe"
	"proa.dev/node/runtime"
	"proa.dev/node/stats"
	"proa.dev/node/volume"
	"proa.dev/node/volume/mounts"
)

// Start starts the container runtime and builds the agent. Nothing happens to Pods before Run.
//
// The parts are built in the order in which they need each other. Where they need each other mutually, as the status of the
// node needs the eviction manager and the eviction manager the status, the part that is built first gets a method of
// callbacks.go, which is called only once Run runs.
func Start(ctx context.Context, c Config) (_ *Agent, err error) {
	a := &Agent{Config: c}
	a.counts, a.trace = agentmetrics.New(), podtrace.New(c.Name, c.Record)
	a.events, a.cpusChanged = client.NewRecorder(c.Client, "kubelet", c.Log).ForNode(c.Name), wait.NewSignal()
	if err := makeFolders(c.Dir); err != nil {
		return nil, fmt.Errorf("make the folder of the node: %w", err)
	}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	if err := a.openRuntime(ctx); err != nil {
		return nil, err
	}
	if err := a.openHost(); err != nil {
		return nil, err
	}
	a.refs = objects.New(c.Client, c.Log)
	if err := a.openDevices(); err != nil {
		return nil, err
	}
	a.openShutdown()
	if err := a.listen(); err != nil {
		return nil, err
	}
	if err := a.openNodeStatus(); err != nil {
		return nil, err
	}
	if err := a.openPods(ctx); err != nil {
		return nil, err
	}
	if err := a.openHousekeeping(); err != nil {
		return nil, err
	}
	if err := a.openServer(); err != nil {
		return nil, err
	}
	a.refs.OnChange(func(uid types.UID) {
		a.volumes.Wake(uid)
		a.pods.RetryNow(uid)
	})
	return a, nil
}

// openRuntime shares the mounts of the data folder and connects to the container runtime.
func (a *Agent) openRuntime(ctx context.Context) error {
	shared, err := a.shareMounts()
	if err != nil {
		return err
	}
	if err := a.connectRuntime(ctx); err != nil {
		if shared { // no container runs that needs it
			err = errors.Join(err, mounts.Unshare(a.Dir))
		}
		return err
	}
	return nil
}

// openHost reads what the machine offers, and makes the parts that limit what Pods may use of it.
func (a *Agent) openHost() (err error) {
	if a.host, err = cgroup.FindHost(); err != nil {
		return err
	}
	a.policy = cgroup.Policy{PodPids: a.PodPids, Exclusive: a.hasExclusiveCPUs}
	a.groups = cgroup.New(cgroup.Config{
		Host: a.host, Driver: a.Driver, Root: cgroup.RootFor(a.Dir), Policy: a.policy, Units: cgroup.FindUnits(),
		Metrics: a.counts, Log: a.Log,
	})
	if a.thresholds, err = eviction.Parse(a.Eviction); err != nil {
		return fmt.Errorf("eviction: %w", err)
	}
	machine, err := (&nodestatus.Host{}).Machine()
	if err != nil {
		return err
	}
	if a.sysctls, err = admission.NewSysctls(machine.Kernel, a.UnsafeSysctls); err != nil {
		return err
	}
	a.apparmor = admission.HostAppArmor()
	a.limits = container.Limits{
		Host: a.host, Memory: machine.Memory, Swap: machine.Swap, Policy: a.policy, AllowSwap: a.Swap, Pin: a.pinningOf,
	}
	return nil
}

// openNodeStatus makes the part that maintains the Node object.
func (a *Agent) openNodeStatus() (err error) {
	a.node, err = nodestatus.New(a.Client, a.Config.Config, nodestatus.Parts{
		Runtime: nodestatus.OfCRI(a.cri), Events: a.events, Pressure: a.pressure, EvictionReserve: a.evictionReserve,
		Devices:      a.deviceCounts,
		ShuttingDown: a.shutdown.Status, AddressesChanged: a.renewCertificate, Volumes: a.volumesInUse, Checks: a.Checks,
	}, a.Log)
	return err
}

// openPods makes the parts that run Pods: what containers need, the source of the Pods, and last their workers.
func (a *Agent) openPods(ctx context.Context) error {
	recorder := podEvents{a.events}
	services, err := a.Client.View(ctx, gr.Services)
	if err != nil {
		return err
	}
	maker, err := container.New(container.Config{
		Data: a.Dir, Refs: a.refs, Cluster: a.Client, Services: services, Events: recorder, Parent: a.groups.Parent,
		NodeIPs: a.nodeIPs, Allocatable: a.allocatable, DNS: a.DNS, Limits: a.limits,
		SeccompDefault: a.SeccompDefault, Users: a.Users, Groups: a.volumeGroups,
	})
	if err != nil {
		return err
	}
	a.prober = probe.New(ctx, probe.Config{Runner: a.cri, Events: recorder, Changed: a.wakePod, NodeIP: a.firstIP, Trace: a.trace})
	if err := a.openImages(recorder); err != nil {
		return err
	}
	a.drivers = csi.New(csi.Config{Dir: a.Dir, Node: a.Name, Client: a.Client, Refs: a.refs, Events: recorder, Log: a.Log})
	a.volumes = volume.New(volume.Config{
		Drivers: a.drivers,
		Dir:     a.Dir, Node: a.Name, Client: a.Client, Refs: a.refs, Events: recorder, Images: a.images, Allocatable: a.allocatable,
		Recursive: func(*corev1.Pod) bool { return true }, Metrics: a.counts, Log: a.Log,
	})
	a.source = podsource.New(podsource.Config{
		Node: a.Name, UID: a.nodeUID, Client: a.Client, Folder: a.StaticPods, URL: a.StaticURL, Log: a.Log, IsRunning: a.isHere,
	})
	suspects, err := pod.OpenSuspects(a.Dir, time.Now(), a.Log)
	if err != nil {
		return fmt.Errorf("see on which Pods the last agent worked: %w", err)
	}
	a.pods = pod.New(pod.Config{
		Suspects: suspects,
		Client:   a.cri, Runtime: a.name, Maker: maker, Cgroups: a.groups, Probes: a.prober,
		Hooks:  lifecyclehook.New(a.cri, recorder, a.firstIP),
		Images: a.images, Volumes: a.volumes, Devices: podDevices{a}, Network: a.node.Network, TruncateMessages: container.TruncateMessages,
		Events: recorder, Statuses: &statusWriter{client: a.Client, mirror: a.source.Mirror},
		TerminationMessage: container.TerminationMessage, PathExpander: container.PathExpander,
		CheckResize: a.checkResize, HostIPs: a.nodeIPs,
		Interruptions: interruption.RecordsIn(a.Dir), BootTime: bootTime(),
		Logs: a.podLogs(), Trace: a.trace, Metrics: a.counts, Log: a.Log,
	})
	return nil
}

// openImages makes the part that pulls images.
func (a *Agent) openImages(recorder podEvents) error {
	plugins, err := a.credentialPlugins()
	if err != nil {
		return err
	}
	c := image.Config{
		Service: image.OfCRI(a.cri), Secrets: a.refs, Events: recorder, Dir: filepath.Join(a.Dir, "images-pulled"),
		Parallel: cmp.Or(a.ParallelPulls, parallelPulls), Plugins: plugins, Log: a.Log,
		Verify: a.Verify, Allowed: a.AllowedImages, Logins: filepath.Join(a.Dir, "config.json"), Metrics: a.counts,
	}
	if a.own != nil {
		c.Progress = a.own
	}
	a.images, err = image.New(c)
	return err
}

// openHousekeeping makes the parts that keep the node from running out of resources: garbage collection of images, statistics,
// and the eviction of Pods.
func (a *Agent) openHousekeeping() (err error) {
	if a.collector, err = image.NewCollector(image.OfCRI(a.cri), a.images, imageGCSettings(a.Config), a.recordNodeEvent,
		a.Log); err != nil {
		return err
	}
	a.stats = stats.New(stats.Config{
		Node: a.Name, Pods: a.pods, Groups: a.groups, Counters: a.host, Runtime: stats.OfCRI(a.cri), Dir: a.Dir,
		VolumeOf: a.volumes.VolumeOf,
	})
	a.openEviction(podEvents{a.events})
	return nil
}

// shareMounts makes the data folder a shared mount, so that containers and the machine see each other's mounts in it, even if the
// machine shares no mounts. That would hide what is mounted below the folder, so it is done only if nothing is. shared reports
// whether it was done now.
func (a *Agent) shareMounts() (shared bool, err error) {
	dir, err := filepath.EvalSymlinks(a.Dir)
	if err != nil {
		return false, err
	}
	table, err := mounts.Table()
	if err != nil {
		return false, err
	}
	if len(mounts.Under(table, dir)) > 0 {
		return false, nil
	}
	return true, mounts.Share(dir)
}

// connectRuntime connects to the container runtime, and starts it first if it is the node's own.
func (a *Agent) connectRuntime(ctx context.Context) (err error) {
	socket := a.Runtime
	if socket == "" {
		if a.own, err = runtime.Start(ctx, a.OwnRuntime, a.Log); err != nil {
			return fmt.Errorf("start the container runtime: %w", err)
		}
		socket = a.own.Socket()
	}
	if a.cri, err = cri.Dial(socket, a.counts.RuntimeOperation); err != nil {
		return err
	}
	version, err := a.cri.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return fmt.Errorf("the container runtime at %s does not answer: %w", socket, err)
	}
	a.name = version.RuntimeName
	return nil
}

// credentialPlugins loads the credential provider plugins; it returns nil if none are configured.
func (a *Agent) credentialPlugins() (*image.Plugins, error) {
	if a.CredentialProviders == "" {
		return nil, nil // there are none
	}
	return image.LoadPlugins(image.PluginConfig{File: a.CredentialProviders, Bin: a.CredentialProviderBin, Accounts: a.refs,
		Cluster: a.Client, Log: a.Log})
}

// imageGCSettings returns the settings of the garbage collection of images.
func imageGCSettings(c Config) image.GCSettings {
	if c.ImageHigh == 0 {
		return image.NewGCSettings(image.DefaultHigh, image.DefaultLow)
	}
	return image.NewGCSettings(c.ImageHigh, c.ImageLow)
}
