// Package node is hop 11 of 12: the agent of a node, which plays the kubelet's part. It makes the Pods that are bound to
// the node run, over a container runtime, and reports their status. Its parts are packages below this one: podsource lists
// the Pods of the node, pod has one worker for each; container, image, volume and cgroup make what a container needs; probe
// and lifecyclehook call its handlers; nodestatus maintains the Node object; kubeletapi serves logs, exec and statistics.
// This package only builds the parts and connects them.
package node

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/internal/connlimit"
	"proa.dev/internal/wait"
	"proa.dev/node/admission"
	"proa.dev/node/agentmetrics"
	"proa.dev/node/cgroup"
	"proa.dev/node/container"
	"proa.dev/node/cri"
	"proa.dev/node/csi"
	"proa.dev/node/deviceplugin"
	"proa.dev/node/dra"
	"proa.dev/node/eviction"
	"proa.dev/node/image"
	"proa.dev/node/kubeletapi"
	"proa.dev/node/logs"
	"proa.dev/node/nodestatus"
	"proa.dev/node/objects"
	"proa.dev/node/pod"
	"proa.dev/node/podsource"
	"proa.dev/node/podstate"
	"proa.dev/node/podtrace"
	"proa.dev/node/probe"
	"proa.dev/node/runtime"
	"proa.dev/node/shutdown"
	"proa.dev/node/stats"
	"proa.dev/node/topology"
	"proa.dev/node/volume"
)

// parallelPulls is how many images are pulled at a time by default.
const parallelPulls = 5

// Verify says when a Pod must have credentials for an image that is on the node already; see image.Verify.
type Verify = image.Verify

// Config configures an agent.
type Config struct {
	nodestatus.Config
	// Client speaks to the API as this node.
	Client client.Client
	// Dir is the data folder of the node.
	Dir string
	// Runtime is the CRI socket of a container runtime that another program runs. If it is empty, the agent starts a containerd
	// of its own, as Own says.
	Runtime    string
	OwnRuntime runtime.Config
	Driver     cgroup.Driver
	DNS        container.DNS
	PodPids    int64
	// Users are the user ids that Pods with user namespaces get.
	Users container.Users
	// CredentialProviders is the configuration file of credential provider plugins, CredentialProviderBin the folder of
	// their programs; empty for none.
	CredentialProviders, CredentialProviderBin string
	// Verify says when a Pod must show that it could pull an image that is on the node already, AllowedImages for which images
	// never.
	Verify        Verify
	AllowedImages []string
	// ImageHigh and ImageLow are the disk usages, in percent, at which the garbage collection of images begins and ends.
	ImageHigh, ImageLow int
	Eviction            eviction.Settings
	ResourceManagers    ResourceManagers
	// Shutdown says how long Pods have to terminate when the machine shuts down, by their priority; if it is empty, they are not
	// terminated by the agent.
	Shutdown []shutdown.Period
	// Images is a folder of image archives that are imported at the start.
	Images string
	// ParallelPulls is how many images are pulled at a time, 0 for the default.
	ParallelPulls int
	// LogSize and LogFiles bound the log of a container, in bytes and files; 0 for the default.
	LogSize  int64
	LogFiles int
	// SeccompDefault gives the runtime's seccomp profile to containers that name none; Swap lets Burstable Pods use swap.
	SeccompDefault, Swap bool
	// StaticPods is a folder of manifests of static Pods, StaticURL the address of one; empty for none.
	StaticPods, StaticURL string
	// UnsafeSysctls may be set by Pods in addition to the safe ones.
	UnsafeSysctls []string
	// Issue issues the serving certificate of the agent.
	Issue     nodestatus.Issuer
	ClientCAs func() *x509.CertPool
	// Record stores how long the agent works on Pods, open records while it does; it may be nil.
	Record func(hop.Record)
	// Metrics are metrics of other parts of the node, which /metrics includes; it may be nil.
	Metrics prometheus.Collector
	// Connections counts the connections of all listeners of the process; nil for no bound.
	Connections *connlimit.Budget
	// RunPart runs a part of the agent until ctx ends, and starts it again when it has ended; if it is nil, the agent does
	// that itself, and nobody else learns of it.
	RunPart func(ctx context.Context, name string, part func() error)
	// Checks are health checks of other parts of the node: while one fails, the node is not ready.
	Checks []nodestatus.Check
	Log    *slog.Logger
}

// Agent is the agent of a node. Its parts are grouped by what they are for.
type Agent struct {
	Config
	runtimeParts
	hostParts
	resourceParts
	podParts
	nodeParts
	serverParts
}

// runtimeParts are the container runtime.
type runtimeParts struct {
	own  *runtime.Runtime // nil if another program runs the runtime
	cri  *cri.Client
	name string // of the runtime, such as containerd
}

// hostParts are what the agent knows of the machine and configures on it.
type hostParts struct {
	host     cgroup.Host
	groups   *cgroup.Tree
	policy   cgroup.Policy
	limits   container.Limits
	sysctls  admission.Sysctls
	apparmor error // why the machine cannot enforce AppArmor profiles, nil if it can
}

// resourceParts allocate devices, CPUs and memory to Pods.
type resourceParts struct {
	machine     *topology.Machine
	devices     *deviceplugin.Manager
	claims      *dra.Manager
	topology    *topology.Manager
	cpusChanged wait.Signal // containers must move to other CPUs
}

// podParts run the Pods.
type podParts struct {
	source          *podsource.Source
	refs            *objects.Refs
	images          *image.Images
	drivers         *csi.Drivers
	volumes         *volume.Volumes
	prober          *probe.Prober
	pods            *pod.Manager
	trace           *podtrace.Recorder // nil if nobody wants records
	admitting       atomic.Value       // the UID of the Pod that is being admitted
	sourcesComplete atomic.Bool        // the sources have listed all their Pods
}

// nodeParts report on the node as a whole and keep it from running out of resources.
type nodeParts struct {
	node       *nodestatus.Node
	events     *client.Recorder
	thresholds []eviction.Threshold
	evictor    *eviction.Manager
	collector  *image.Collector
	stats      *stats.Stats
	shutdown   *shutdown.Manager
	counts     *agentmetrics.Metrics // what the parts of the agent count
}

// serverParts serve the kubelet API.
type serverParts struct {
	listener net.Listener
	cert     *nodestatus.Certificate
	notify   *logs.Notify
	server   *kubeletapi.Server
}

// podLogs returns the folder of the logs of all Pods.
func (a *Agent) podLogs() string { return filepath.Join(a.Dir, "logs", "pods") }

// socket returns the CRI socket of the runtime.
func (a *Agent) socket() string {
	if a.own != nil {
		return a.own.Socket()
	}
	return strings.TrimPrefix(a.Runtime, "unix://")
}

// Run runs Pods until ctx ends. Containers keep running after that.
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
	wg.Go(func() { a.importImages(ctx) })
	wg.Go(func() { a.volumes.Run(ctx) })
	wg.Go(func() { a.runPart(ctx, "local-path", a.volumes.RunLocalPath) })
	wg.Go(func() { a.runPart(ctx, "plugins", a.runPluginRegistry) })
	wg.Go(func() { a.runPart(ctx, "devices", a.devices.Run) })
	wg.Go(func() { a.claims.Run(ctx) })
	wg.Go(func() { a.runPart(ctx, "pod-resources", a.servePodResources) })
	wg.Go(func() { a.reconcileCPUSets(ctx) })
	wg.Go(func() { a.watchShutdown(ctx) })
	wg.Go(func() { a.runPodSource(ctx) })
	wg.Go(func() { a.notify.Run(ctx) })
	wg.Go(func() {
		(&logs.Rotator{Writing: containerLogs{a}, MaxSize: a.LogSize, MaxFiles: a.LogFiles, Log: a.Log}).Run(ctx)
	})
	wg.Go(func() { a.collector.Run(ctx) })
	wg.Go(func() { a.evictor.Run(ctx) })
	wg.Go(func() {
		if err := eviction.WatchOOM(ctx, a.recordNodeEvent); err != nil && ctx.Err() == nil {
			a.Log.DebugContext(ctx, "the kernel log cannot be watched for out-of-memory kills", "err", err)
		}
	})
	wg.Go(func() { a.runPart(ctx, "certificate", a.cert.Run) })
	wg.Go(func() { a.runPart(ctx, "kubelet-api", a.serveKubeletAPI) })
	return a.node.Run(ctx)
}

// runPodSource passes the Pods of the node from their sources to the Pod manager, new ones after admission.
func (a *Agent) runPodSource(ctx context.Context) {
	if err := a.waitRegistered(ctx); err != nil {
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
			a.pods.SourceRemoved(u.Pod.UID)
		default:
			var v *podstate.Termination
			var traced *podtrace.Work
			if _, known := a.pods.Find(u.Pod.UID); !known {
				traced = a.traceReceived(u.Pod)
				a.admitting.Store(u.Pod.UID)
				v = a.admit(ctx, u.Pod)
			}
			a.pods.Update(u.Pod, v) //nolint:contextcheck // workers live as long as the manager runs
			traced.Done()
		}
		if u.Complete && !a.sourcesComplete.Swap(true) {
			a.pods.SourcesComplete(ctx)
			settling.Go(func() { a.releaseStale(ctx) })
		}
	}
}

// runPart runs a part of the agent until ctx ends, and starts it again whenever it ends before.
func (a *Agent) runPart(ctx context.Context, name string, run func(context.Context) error) {
	if a.RunPart != nil {
		a.RunPart(ctx, name, func() error { return run(ctx) })
		return
	}
	backoff := wait.Backoff{First: 100 * time.Millisecond, Max: 30 * time.Second}
	for ctx.Err() == nil {
		if err := run(ctx); ctx.Err() == nil {
			a.Log.ErrorContext(ctx, "a part of the node has ended and is started again", "part", name, "err", err)
		}
		_ = backoff.Sleep(ctx) // the loop ends with ctx
	}
}

// recordNodeEvent records an Event about the Node.
func (a *Agent) recordNodeEvent(eventType, reason, message string) {
	if n := a.node.Current(); n != nil {
		about := n.DeepCopy()
		about.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
		a.events.Event(about, eventType, reason, "%s", message)
	}
}

// nodeUID returns the UID of the Node object, empty before the node is registered.
func (a *Agent) nodeUID() types.UID {
	if n := a.node.Current(); n != nil {
		return n.UID
	}
	return ""
}

// importImages imports the image archives of Config.Images into the node's own runtime.
func (a *Agent) importImages(ctx context.Context) {
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
		if _, err := runtime.ImportImages(ctx, a.own.Socket(), f); err != nil {
			a.Log.ErrorContext(ctx, "cannot load an archive of images", "file", name, "err", err)
		}
		_ = f.Close()
	}
}

// nodeIPs returns the internal addresses of the node.
func (a *Agent) nodeIPs() (out []netip.Addr) {
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

// allocatable returns what Pods may use of the node, nil before the node is registered.
func (a *Agent) allocatable() corev1.ResourceList {
	if n := a.node.Current(); n != nil {
		return n.Status.Allocatable
	}
	return nil
}

// RefreshStatus updates the status of the Node now, because the outcome of one of Checks has changed.
func (a *Agent) RefreshStatus() { a.node.Refresh() }

// Sandboxes returns the ids of the sandboxes that the runtime has.
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

// Node returns the Node object as the API last returned it, nil before the node is registered.
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
