package pod

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/cri"
	"proa.dev/node/fact"
	"proa.dev/node/podstate"
	"proa.dev/node/podtrace"
)

// Images provides the images of containers.
type Images interface {
	// Ensure makes the image of a container present, as its pull policy says. It waits while the image is pulled. If
	// the error is a *fact.Waiting, the container's status shows its reason. The step of
	// traced that is under way says how large it is; traced may be nil.
	Ensure(ctx context.Context, p *corev1.Pod, c *corev1.Container, traced *podtrace.Work) (*cri.Image, error)
}

// Volumes mounts the volumes of Pods. All methods are idempotent.
type Volumes interface {
	// Mount mounts the volumes of a Pod, and returns when they are ready. From then on they are kept up to date until
	// Unmount.
	Mount(ctx context.Context, p *corev1.Pod) error
	// Binds returns the mounts and devices of a container. expand replaces $(VAR) of the container's environment in a
	// subPathExpr.
	Binds(ctx context.Context, p *corev1.Pod, c *corev1.Container, expand func(string) (string, error)) ([]*cri.Mount, []*cri.Device, error)
	// Unmount unmounts the volumes of a Pod, and deletes those that live only as long as the Pod.
	Unmount(ctx context.Context, uid types.UID) error
	// Remove removes the folder of a Pod, after Unmount.
	Remove(ctx context.Context, uid types.UID) error
	// PodUIDs returns the Pods that have volumes on this node.
	PodUIDs(ctx context.Context) ([]types.UID, error)
}

// Devices allocates exclusive resources to Pods: devices, CPUs and memory.
type Devices interface {
	// Prepare prepares the resource claims of a Pod, before its sandbox is created. It is idempotent.
	Prepare(ctx context.Context, p *corev1.Pod) error
	// Grant allocates the devices of a container that is about to start, and adds what they need to its run.
	Grant(ctx context.Context, p *corev1.Pod, c *corev1.Container, r *Run) error
	// Holds reports whether a Pod holds exclusive resources; Release releases them once no container of the Pod runs
	// any more.
	Holds(uid types.UID) bool
	Release(ctx context.Context, uid types.UID) error
	// Health returns the health of a container's devices, for its status.
	Health(p *corev1.Pod, c *corev1.Container) []corev1.ResourceStatus
}

// Run is what a container is created from, beside its spec.
type Run struct {
	Image   *cri.Image
	Attempt uint32
	IPs     []netip.Addr
	Binds   []*cri.Mount
	Devices []*cri.Device
	Env     []*cri.KeyValue
	// CDI are the names of CDI devices, which the runtime resolves itself.
	CDI []string
	// Annotations are annotations that device plugins ask for.
	Annotations map[string]string
	// Target is the container whose process namespace an ephemeral container shares; empty for none.
	Target string
}

// Maker translates a Pod spec to the configuration of the runtime. Errors may be *fact.Waiting
// (CreateContainerConfigError and the like).
type Maker interface {
	Sandbox(ctx context.Context, p *corev1.Pod, attempt uint32) (config *cri.PodSandboxConfig, handler string, err error)
	// Env returns the environment of a container, without the variables of its image.
	Env(ctx context.Context, p *corev1.Pod, c *corev1.Container, ips []netip.Addr) ([]*cri.KeyValue, error)
	Container(ctx context.Context, p *corev1.Pod, c *corev1.Container, r Run) (*cri.ContainerConfig, error)
	// Resources returns the resource limits of a container.
	Resources(p *corev1.Pod, c *corev1.Container) *cri.LinuxContainerResources
	// Hash covers the fields of a container whose change requires a restart.
	Hash(c *corev1.Container) string
}

// Cgroups manages the cgroups of Pods.
type Cgroups interface {
	// Ensure creates the cgroup of a Pod with its limits, and returns its name as the runtime expects it.
	Ensure(p *corev1.Pod) (parent string, err error)
	// Update sets the limits of a Pod's cgroup to those of its present spec.
	Update(p *corev1.Pod) error
	Remove(uid types.UID) error
	PodUIDs() ([]types.UID, error)
}

// Probes runs the probes of containers. When a result changes, the worker of the Pod is woken.
type Probes interface {
	// Sync starts the probes of the Pod's running containers and stops those of others.
	Sync(p *corev1.Pod, f *fact.Pod)
	// Of returns the result of the probes of one run of a container.
	Of(uid types.UID, containerID string) podstate.Health
	// Terminating stops all probes of a Pod except readiness probes, when the Pod terminates without having been
	// deleted.
	Terminating(uid types.UID)
	// Forget stops all probes of a Pod.
	Forget(uid types.UID)
}

// Hooks runs lifecycle handlers.
type Hooks interface {
	// Run runs a lifecycle handler of a running container.
	Run(ctx context.Context, p *corev1.Pod, c *corev1.Container, id string, ips []netip.Addr, h *corev1.LifecycleHandler) error
}
