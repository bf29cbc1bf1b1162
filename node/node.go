// Package node is hop 11 of 12: the agent of a node. It makes the Pods that are bound to the node run, over a container
// runtime, and says what becomes of them. Its parts stand side by side: pod has the workers; container, image, volume and
// cgroup bring what a container needs; probe and hook ask it how it is; self speaks for the machine; serve lets others
// look in. This file puts them together.
package node

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/kinds/gr"
	"proa.dev/node/admit"
	"proa.dev/node/cgroup"
	"proa.dev/node/container"
	"proa.dev/node/cri"
	"proa.dev/node/csi"
	"proa.dev/node/device"
	"proa.dev/node/dra"
	"proa.dev/node/evict"
	"proa.dev/node/hook"
	"proa.dev/node/image"
	"proa.dev/node/interruption"
	"proa.dev/node/logs"
	"proa.dev/node/nodestatus"
	"proa.dev/node/objects"
	"proa.dev/node/pod"
	"proa.dev/node/probe"
	"proa.dev/node/runtime"
	"proa.dev/node/serve"
	"proa.dev/node/shutdown"
	"proa.dev/node/source"
	"proa.dev/node/stats"
	"proa.dev/node/topology"
	"proa.dev/node/volume"
	"proa.dev/node/volume/mounts"
)

// parallelPulls is how many images are pulled at a time.
const parallelPulls = 5

// Verify is when Pods must show a login for an image that is here; see image.Verify.
type Verify = image.Verify

// Config is what an agent is told.
type Config struct {
	nodestatus.Config
	// Client speaks to the cluster as this node.
	Client client.Client
	// Dir has everything the agent keeps.
	Dir string
	// Runtime is the socket of a runtime that somebody else runs; empty starts an own one, as Own says.
	Runtime string
	Own     runtime.Config
	Driver  cgroup.Driver
	DNS     container.DNS
	PodPids int64
	// Users are the ids that Pods with user namespaces get.
	Users container.Users
	// Logins is a configuration of programs that know logins for registries, LoginsBin their folder; empty for none.
	Logins, LoginsBin string
	// Verify says when a Pod must show that it could pull an image that is here, AllowedImages for which ones never.
	Verify        Verify
	AllowedImages []string
	// ImageHigh and ImageLow are how full the disk may be, in percent, before unused images go, and after.
	ImageHigh, ImageLow int
	Eviction            evict.Settings
	Align               Align
	// Shutdown is how long Pods have when the machine goes down, by their priority; none leaves them to the machine.
	Shutdown []shutdown.Period
	// Images has archives of images that are loaded at the start.
	Images string
	// Pulls is how many images are pulled at a time, 0 for the usual number.
	Pulls int
	// LogSize and LogFiles bound the log of a container, in bytes and files; 0 for the usual ones.
	LogSize  int64
	LogFiles int
	// SeccompDefault gives containers that name no seccomp profile that of the runtime; Swap lets burstable Pods use swap.
	SeccompDefault, Swap bool
	// StaticPods is a folder of manifests, StaticURL an address of one; empty for none.
	StaticPods, StaticURL string
	// UnsafeSysctls may be set by Pods beside the safe ones.
	UnsafeSysctls []string
	// Issue makes the certificate with which the agent serves.
	Issue     nodestatus.Issuer
	ClientCAs func() *x509.CertPool
	// Record keeps what the starts of Pods spent at this hop; nil for nobody.
	Record func(hop.Record)
	// Numbers are those of other parts of the node, which /metrics has too; nil for none.
	Numbers prometheus.Collector
	// Checks are of other parts of the node, without which it is not ready.
	Checks []nodestatus.Check
	Log    *slog.Logger
}

// Agent is a running node.
type Agent struct {
	Config
	own        *runtime.Runtime // nil where somebody else runs it
	cri        *cri.Client
	name       string // of the runtime
	groups     *cgroup.Tree
	refs       *objects.Refs
	node       *nodestatus.Node
	prober     *probe.Prober
	pods       *pod.Manager
	drivers    *csi.Drivers
	volumes    *volume.Volumes
	source     *source.Source
	collector  *image.Collector
	stats      *stats.Stats
	evictor    *evict.Manager
	thresholds []evict.Threshold
	server     *serve.Server
	listener   net.Listener
	cert       *nodestatus.Certificate
	notify     *logs.Notify
	apparmor   error // why the machine cannot enforce its profiles, nil if it can
	sysctls    admit.Sysctls
	events     *client.Recorder
	devices    *device.Manager
	claims     *dra.Manager
	topology   *topology.Manager
	align      aligned
	limits     container.Limits
	shutdown   *shutdown.Manager
	entering   atomic.Value // the UID of the Pod that is being admitted
	complete   atomic.Bool  // the sources have told of all Pods
}

// Start brings up the runtime and puts the agent together. Nothing happens to Pods before Run.
func Start(ctx context.Context, c Config) (_ *Agent, err error) {
	a := &Agent{Config: c, events: client.NewRecorder(c.Client, "kubelet", c.Log).On(c.Name), align: aligned{changed: make(chan struct{}, 1)}}
	if err := folders(c.Dir); err != nil {
		return nil, fmt.Errorf("make the folder of the node: %w", err)
	}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	shared, err := a.share()
	if err != nil {
		return nil, err
	}
	if err := a.connect(ctx); err != nil {
		if shared { // nothing runs that needs it
			err = errors.Join(err, mounts.Unshare(a.Dir))
		}
		return nil, err
	}
	host, err := cgroup.Find()
	if err != nil {
		return nil, err
	}
	policy := cgroup.Policy{PodPids: c.PodPids, Exclusive: a.exclusive}
	a.groups = cgroup.New(cgroup.Config{Host: host, Driver: c.Driver, Root: cgroup.RootFor(c.Dir), Policy: policy, Units: cgroup.FindUnits(), Log: c.Log})
	a.refs = objects.New(c.Client, c.Log)
	if a.thresholds, err = evict.Parse(c.Eviction); err != nil {
		return nil, fmt.Errorf("eviction: %w", err)
	}
	if a.sysctls, err = admit.NewSysctls(kernel(), c.UnsafeSysctls); err != nil {
		return nil, err
	}
	a.apparmor = admit.HostAppArmor()
	if err := a.openDevices(); err != nil {
		return nil, err
	}
	a.openShutdown()
	if err := a.listen(); err != nil {
		return nil, err
	}
	if a.node, err = nodestatus.New(c.Client, a.Config.Config, nodestatus.Parts{
		Runtime: nodestatus.OfCRI(a.cri), Events: a.events, Pressed: func(t corev1.NodeConditionType) bool { return a.evictor.Pressed(t) },
		Evicting: a.evicting, Devices: a.counts, ShuttingDown: a.shutdown.Status, Moved: func() { a.cert.Poke() },
		Volumes: func() ([]corev1.UniqueVolumeName, bool) { return a.volumes.InUse(), true }, Checks: c.Checks,
	}, c.Log); err != nil {
		return nil, err
	}
	services, err := c.Client.View(ctx, gr.Services)
	if err != nil {
		return nil, err
	}
	recorder := podEvents{a.events}
	machine := (&nodestatus.Host{}).Machine()
	a.limits = container.Limits{Host: host, Memory: machine.Memory, Swap: machine.Swap, Policy: policy, Swapping: c.Swap, Pin: a.pin}
	maker, err := container.New(container.Config{
		Data: c.Dir, Refs: a.refs, Cluster: c.Client, Services: services, Events: recorder, Parent: a.groups.Parent,
		NodeIPs: a.ips, Allocatable: a.allocatable, DNS: c.DNS, Limits: a.limits,
		SeccompDefault: c.SeccompDefault,
		Users:          c.Users, Groups: func(p *corev1.Pod) []int64 { return a.volumes.Groups(p) },
	})
	if err != nil {
		return nil, err
	}
	first := func() netip.Addr {
		if ips := a.ips(); len(ips) > 0 {
			return ips[0]
		}
		return netip.Addr{}
	}
	a.prober = probe.New(ctx, probe.Config{Runner: a.cri, Events: recorder, Changed: func(uid types.UID) { a.pods.Wake(uid) }, Host: first})
	plugins, err := a.loginPlugins()
	if err != nil {
		return nil, err
	}
	images, err := image.New(image.Config{
		Service: image.OfCRI(a.cri), Secrets: a.refs, Events: recorder, Dir: filepath.Join(c.Dir, "images-pulled"), Parallel: cmp.Or(c.Pulls, parallelPulls), Plugins: plugins, Log: c.Log,
		Verify: c.Verify, Allowed: c.AllowedImages, Logins: filepath.Join(c.Dir, "config.json"),
	})
	if err != nil {
		return nil, err
	}
	a.drivers = csi.New(csi.Config{Dir: c.Dir, Node: c.Name, Client: c.Client, Refs: a.refs, Events: recorder, Log: c.Log})
	a.volumes = volume.New(volume.Parts{
		Drivers: a.drivers,
		Dir:     c.Dir, Node: c.Name, Client: c.Client, Refs: a.refs, Events: recorder, Images: images, Allocatable: a.allocatable,
		Recursive: func(*corev1.Pod) bool { return true }, Log: c.Log,
	})
	a.source = source.New(source.Config{
		Node: c.Name, UID: a.uid, Client: c.Client, Folder: c.StaticPods, URL: c.StaticURL, Log: c.Log,
		Lives: func(uid types.UID) bool { _, here := a.pods.Find(uid); return here },
	})
	a.pods = pod.New(pod.Config{
		Client: a.cri, Runtime: a.name, Maker: maker, Cgroups: a.groups, Probes: a.prober, Hooks: hook.New(a.cri, recorder, first),
		Images: images, Volumes: a.volumes, Devices: grants{a}, Network: a.node.Network, Shorten: container.Shorten,
		Events: recorder, Statuses: &statuses{client: c.Client, mirror: a.source.Mirror},
		Said: container.Said, Expand: container.ExpandPath, Fits: a.fits, HostIPs: a.ips,
		Interruptions: interruption.In(c.Dir), Booted: booted(),
		Logs: a.podLogs(), Spent: a.spent, Log: c.Log,
	})
	if a.collector, err = image.NewCollector(image.OfCRI(a.cri), images, keepImages(c), a.noteNode, c.Log); err != nil {
		return nil, err
	}
	a.stats = stats.New(stats.Config{
		Node: c.Name, Pods: a.pods, Groups: a.groups, Counters: host, Runtime: stats.OfCRI(a.cri), Dir: c.Dir, VolumeOf: a.volumes.VolumeOf,
	})
	a.openEviction(recorder)
	if err := a.openDoor(); err != nil {
		return nil, err
	}
	a.refs.OnChange(func(uid types.UID) {
		a.volumes.Wake(uid)
		a.pods.Again(uid)
	})
	return a, nil
}

// podLogs is the folder of the logs of all Pods.
func (a *Agent) podLogs() string { return filepath.Join(a.Dir, "logs", "pods") }

// socket is where the runtime listens.
func (a *Agent) socket() string {
	if a.own != nil {
		return a.own.Socket()
	}
	return strings.TrimPrefix(a.Runtime, "unix://")
}

// share lets containers and the machine see each other's mounts in the node's folder, also where the machine shares none. What
// is mounted there already must stay as it is, so it is done before anything is. It returns whether it was done now.
func (a *Agent) share() (shared bool, err error) {
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

// connect reaches the runtime, and starts it if it is the node's own.
func (a *Agent) connect(ctx context.Context) (err error) {
	socket := a.Runtime
	if socket == "" {
		if a.own, err = runtime.Start(ctx, a.Own, a.Log); err != nil {
			return fmt.Errorf("start the container runtime: %w", err)
		}
		socket = a.own.Socket()
	}
	if a.cri, err = cri.Dial(socket); err != nil {
		return err
	}
	version, err := a.cri.Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return fmt.Errorf("the container runtime at %s does not answer: %w", socket, err)
	}
	a.name = version.RuntimeName
	return nil
}

// Run runs Pods until ctx ends. Their containers keep running.
func (a *Agent) Run(ctx context.Context) error {
	defer a.close()
	if err := a.groups.Start(nil); err != nil {
		return fmt.Errorf("make the groups of Pods: %w", err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { a.events.Run(ctx) })
	wg.Go(func() { a.pods.Run(ctx) })
	wg.Go(func() { a.load(ctx) })
	wg.Go(func() { a.volumes.Run(ctx) })
	wg.Go(func() { a.keep(ctx, "local-path", a.volumes.KeepLocal) })
	wg.Go(func() { a.keep(ctx, "plugins", a.plugins) })
	wg.Go(func() { a.keep(ctx, "devices", a.devices.Run) })
	wg.Go(func() { a.claims.Run(ctx) })
	wg.Go(func() { a.keep(ctx, "pod-resources", a.serveResources) })
	wg.Go(func() { a.keepMoving(ctx) })
	wg.Go(func() { a.watchShutdown(ctx) })
	wg.Go(func() { a.follow(ctx) })
	wg.Go(func() { a.notify.Run(ctx) })
	wg.Go(func() {
		(&logs.Rotator{Writing: writing{a}, MaxSize: a.LogSize, MaxFiles: a.LogFiles, Log: a.Log}).Run(ctx)
	})
	wg.Go(func() { a.collector.Run(ctx) })
	wg.Go(func() { a.evictor.Run(ctx) })
	wg.Go(func() {
		if err := evict.WatchOOM(ctx, a.noteNode); err != nil && ctx.Err() == nil {
			a.Log.DebugContext(ctx, "the kernel does not say when it runs out of memory", "err", err)
		}
	})
	wg.Go(func() { a.keep(ctx, "certificate", a.cert.Run) })
	wg.Go(func() {
		a.keep(ctx, "door", func(ctx context.Context) error { return a.server.Listen(ctx, a.listener, a.cert.Serve) })
	})
	return a.node.Run(ctx)
}

// follow hands the Pods of the node to their workers.
func (a *Agent) follow(ctx context.Context) {
	if err := a.registered(ctx); err != nil {
		if ctx.Err() == nil {
			a.Log.ErrorContext(ctx, "the node cannot take Pods", "err", err)
		}
		return
	}
	var settling sync.WaitGroup
	defer settling.Wait()
	for u := range a.source.Updates(ctx) {
		switch {
		case u.Pod == nil:
		case u.Gone:
			a.pods.Gone(u.Pod.UID)
		default:
			var v *pod.Verdict
			if _, known := a.pods.Find(u.Pod.UID); !known {
				a.entering.Store(u.Pod.UID)
				v = a.enter(ctx, u.Pod)
			}
			a.pods.Update(u.Pod, v) //nolint:contextcheck // workers live as long as the manager runs
		}
		if u.Complete && !a.complete.Swap(true) {
			a.pods.Complete(ctx)
			settling.Go(func() { a.settled(ctx) })
		}
	}
}

// keep says when a part has ended that should not have.
func (a *Agent) keep(ctx context.Context, name string, run func(context.Context) error) {
	if err := run(ctx); err != nil && ctx.Err() == nil {
		a.Log.ErrorContext(ctx, "a part of the node has ended", "part", name, "err", err)
	}
}

// loginPlugins are the programs that know logins for registries, nil for none.
func (a *Agent) loginPlugins() (*image.Plugins, error) {
	if a.Logins == "" {
		return nil, nil // none is what was asked for
	}
	return image.LoadPlugins(image.PluginConfig{File: a.Logins, Bin: a.LoginsBin, Accounts: a.refs, Cluster: a.Client, Log: a.Log})
}

// keepImages says which images stay.
func keepImages(c Config) image.Keep {
	k := image.Usual()
	if c.ImageHigh > 0 {
		k.High, k.Low = c.ImageHigh, c.ImageLow
	}
	return k
}

// noteNode tells people about the node.
func (a *Agent) noteNode(eventType, reason, message string) {
	if n := a.node.Current(); n != nil {
		about := n.DeepCopy()
		about.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
		a.events.Event(about, eventType, reason, "%s", message)
	}
}

// kernel is the version of the running one.
func kernel() string { return (&nodestatus.Host{}).Machine().Kernel }

// uid is that of the Node, empty before it is registered.
func (a *Agent) uid() types.UID {
	if n := a.node.Current(); n != nil {
		return n.UID
	}
	return ""
}

// load brings the archives that wait for the node's start.
func (a *Agent) load(ctx context.Context) {
	if a.own == nil || a.Images == "" {
		return
	}
	files, err := filepath.Glob(filepath.Join(a.Images, "*"))
	if err != nil {
		return
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			a.Log.ErrorContext(ctx, "cannot read an archive of images", "file", name, "err", err)
			continue
		}
		if _, err := runtime.Import(ctx, a.own.Socket(), f); err != nil {
			a.Log.ErrorContext(ctx, "cannot load an archive of images", "file", name, "err", err)
		}
		_ = f.Close()
	}
}

// ips are the node's addresses.
func (a *Agent) ips() (out []netip.Addr) {
	n := a.node.Current()
	if n == nil {
		return a.Addresses
	}
	for _, x := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(x.Address); err == nil && x.Type == corev1.NodeInternalIP {
			out = append(out, ip)
		}
	}
	return out
}

// allocatable is what Pods may use of the node.
func (a *Agent) allocatable() corev1.ResourceList {
	if n := a.node.Current(); n != nil {
		return n.Status.Allocatable
	}
	return nil
}

// Poke makes the agent look at its Node now, because one of Checks has changed.
func (a *Agent) Poke() { a.node.Poke() }

// Sandboxes are the ids of the sandboxes that the runtime has.
func (a *Agent) Sandboxes(ctx context.Context) (map[string]bool, error) {
	all, err := a.cri.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, b := range all.Items {
		out[b.Id] = true
	}
	return out, nil
}

// Node is the node as the cluster has it, nil before it is registered.
func (a *Agent) Node() *corev1.Node { return a.node.Current() }

func (a *Agent) close() {
	if a.refs != nil {
		a.refs.Close()
	}
	if a.cri != nil {
		_ = a.cri.Close()
	}
	if a.own != nil {
		a.own.Detach()
	}
}
