package pod

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/cri"
	"proa.dev/node/fact"
)

// Images brings images to the node.
type Images interface {
	// Ensure makes the image of a container present, as its pull policy says. It waits while the image is pulled. An error may
	// be a *fact.Waiting, which is then shown as it is.
	Ensure(ctx context.Context, p *corev1.Pod, c *corev1.Container) (*cri.Image, error)
}

// Volumes keeps the volumes of Pods. All of it may be called again and again.
type Volumes interface {
	// Mount makes the volumes of a Pod ready, and returns when they are. From then on they are kept up to date until Unmount.
	Mount(ctx context.Context, p *corev1.Pod) error
	// Binds are the mounts and devices of a container. expand replaces $(VAR) of the container's environment in a subPathExpr.
	Binds(ctx context.Context, p *corev1.Pod, c *corev1.Container, expand func(string) (string, error)) ([]*cri.Mount, []*cri.Device, error)
	// Unmount takes the volumes of a Pod away, with what was only theirs.
	Unmount(ctx context.Context, uid types.UID) error
	// Remove removes all that a Pod has kept on this node, after Unmount.
	Remove(ctx context.Context, uid types.UID) error
	// Left are the Pods that have volumes here.
	Left(ctx context.Context) ([]types.UID, error)
}

// Devices gives Pods what is not for everybody: devices, and processors and memory of their own.
type Devices interface {
	// Prepare readies what a Pod has by claims, before its sandbox is made. It may be called again and again.
	Prepare(ctx context.Context, p *corev1.Pod) error
	// Grant readies the devices of a container that is about to start, and adds to its run what they need.
	Grant(ctx context.Context, p *corev1.Pod, c *corev1.Container, r *Run) error
	// Holds says that a Pod has something to give back, and Release takes it back when nothing of the Pod runs any more.
	Holds(uid types.UID) bool
	Release(ctx context.Context, uid types.UID) error
	// Health is how the devices of a container are, for its status.
	Health(p *corev1.Pod, c *corev1.Container) []corev1.ResourceStatus
}

// Run is what a container is made from, beside its spec.
type Run struct {
	Image   *cri.Image
	Attempt uint32
	IPs     []netip.Addr
	Binds   []*cri.Mount
	Devices []*cri.Device
	Env     []*cri.KeyValue
	// CDI are the names of devices that the runtime knows itself.
	CDI []string
	// Notes are annotations that devices ask for.
	Notes map[string]string
	// Target is the container whose process namespace an ephemeral container shares; empty for none.
	Target string
}

// Maker turns a spec into what the runtime takes. Errors may be *fact.Waiting (CreateContainerConfigError and the like).
type Maker interface {
	Sandbox(ctx context.Context, p *corev1.Pod, attempt uint32) (config *cri.PodSandboxConfig, handler string, err error)
	// Env is the environment of a container: what the image says is not in it.
	Env(ctx context.Context, p *corev1.Pod, c *corev1.Container, ips []netip.Addr) ([]*cri.KeyValue, error)
	Container(ctx context.Context, p *corev1.Pod, c *corev1.Container, r Run) (*cri.ContainerConfig, error)
	// Resources are the limits of a container.
	Resources(p *corev1.Pod, c *corev1.Container) *cri.LinuxContainerResources
	// Hash is that of what cannot change while a container runs.
	Hash(c *corev1.Container) string
}

// Cgroups keeps the groups that Pods are counted in.
type Cgroups interface {
	// Ensure makes the group of a Pod with its limits, and returns its name as the runtime takes it.
	Ensure(p *corev1.Pod) (parent string, err error)
	// Update gives the group of a Pod the limits of its present spec.
	Update(p *corev1.Pod) error
	Remove(uid types.UID) error
	Left() ([]types.UID, error)
}

// Probes asks containers how they are. A change calls back the worker of the Pod.
type Probes interface {
	// Sync probes the containers of a Pod that run, and no others.
	Sync(p *corev1.Pod, f *fact.Pod)
	// Of is what the probes of one run of a container say.
	Of(uid types.UID, containerID string) Health
	// Terminating ends the probes of a Pod but for those of its readiness, where it ends without being deleted.
	Terminating(uid types.UID)
	// Forget ends all probes of a Pod.
	Forget(uid types.UID)
}

// Health is what is known of a run of a container by its probes.
type Health struct {
	Started bool // its startup probe, if it has one, has succeeded
	Ready   bool
	// Failed is set when a startup or liveness probe wants the container ended.
	Failed *Failure
}

// Failure is a probe that wants a container ended.
type Failure struct {
	Probe   string // liveness or startup
	Message string
	Grace   *int64 // the probe's own, nil for the Pod's
}

// Hooks runs lifecycle handlers.
type Hooks interface {
	// Run runs a handler of a running container; the message is what it said when it failed.
	Run(ctx context.Context, p *corev1.Pod, c *corev1.Container, id string, ips []netip.Addr, h *corev1.LifecycleHandler) error
}
