// Package container turns the spec of a Pod into what a container runtime takes: the sandbox with its names, name servers and
// namespaces, and each container with its command, environment, mounts, identity and limits. Nearly all of it is pure; the
// few files it writes (hosts, the place for a last message, ranges of user ids) are below the folder of their Pod and go with
// it.
package container

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"
	"path/filepath"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
	"proa.dev/node/cgroup"
	"proa.dev/node/event"
)

// Refs reads what Pods name. An object that is not there is a NotFound of the API.
type Refs interface {
	ConfigMap(ctx context.Context, p *corev1.Pod, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, p *corev1.Pod, name string) (*corev1.Secret, error)
}

// Getter reads single objects; a client.Client is one.
type Getter interface {
	Get(ctx context.Context, gr schema.GroupResource, namespace, name, sub string) (kind.Object, error)
}

// Config is what a Maker knows of its node.
type Config struct {
	// Data is the folder of the agent.
	Data    string
	Refs    Refs
	Cluster Getter
	// Services are those of the cluster; nil for an agent without one.
	Services client.View
	Events   event.Recorder

	// Parent is the group of a Pod.
	Parent func(*corev1.Pod) string
	// NodeIPs are the addresses of the node, the preferred family first.
	NodeIPs func() []netip.Addr
	// Allocatable is what Pods may use of the node.
	Allocatable func() corev1.ResourceList

	DNS    DNS
	Limits Limits
	Users  Users
	// SeccompDefault gives containers that name no seccomp profile that of the runtime instead of none.
	SeccompDefault bool
	// SELinux says that the kernel has labels for files to be changed.
	SELinux bool
	// Groups are more groups of a Pod's processes, such as its volumes ask for; nil for none.
	Groups func(*corev1.Pod) []int64
}

// Limits is how containers are limited.
type Limits struct {
	Host cgroup.Host
	// Memory and Swap are what the machine has, in bytes.
	Memory, Swap int64
	// Policy is that of the groups of Pods, so that containers and Pods agree.
	Policy cgroup.Policy
	// Swapping lets burstable containers use swap, in proportion to the memory they ask for.
	Swapping bool
	// AloneOOM kills only the process that ran out of memory, where the kernel could kill its whole container.
	AloneOOM bool
	// Pin gives a container CPUs and memory nodes of its own; nil for never.
	Pin func(p *corev1.Pod, c *corev1.Container) Pin
}

// Pin is where a container runs, as the kernel writes lists: "0-3,7".
type Pin struct {
	CPUs, Memory string
	// Exclusive says that no other container has these CPUs: no quota is needed then.
	Exclusive bool
}

// Maker makes configurations for the runtime. It satisfies pod.Maker.
type Maker struct {
	Config
	masked func() []string
	// users guards the choice of user ids: see users.go.
	users sync.Mutex
}

// New makes a Maker.
func New(c Config) (*Maker, error) {
	if err := c.Users.check(); err != nil {
		return nil, err
	}
	if c.Limits.Policy.Period == 0 {
		c.Limits.Policy.Period = 100000
	}
	return &Maker{Config: c, masked: sync.OnceValue(func() []string { return maskedPaths("/sys/devices/system/cpu") })}, nil
}

// Hash is that of what makes a restart necessary when it changes.
func (m *Maker) Hash(c *corev1.Container) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%q %q", c.Name, c.Image)
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// Handler is the runtime's name for the class that a Pod asks for.
func (m *Maker) Handler(ctx context.Context, p *corev1.Pod) (string, error) {
	if p.Spec.RuntimeClassName == nil || *p.Spec.RuntimeClassName == "" {
		return "", nil
	}
	o, err := m.Cluster.Get(ctx, gr.RuntimeClasses, "", *p.Spec.RuntimeClassName, "")
	if err != nil {
		return "", err
	}
	class, ok := o.(*nodev1.RuntimeClass)
	if !ok {
		return "", fmt.Errorf("the runtime class %s is a %T", *p.Spec.RuntimeClassName, o)
	}
	return class.Handler, nil
}

// PodDir is where everything of a Pod is.
func (m *Maker) PodDir(uid types.UID) string { return filepath.Join(m.Data, "pods", string(uid)) }

// LogDir is where the logs of a Pod are.
func (m *Maker) LogDir(p *corev1.Pod) string {
	return filepath.Join(m.Data, "logs", "pods", p.Namespace+"_"+p.Name+"_"+string(p.UID))
}

// full is how messages name a Pod.
func full(p *corev1.Pod) string { return fmt.Sprintf("%s_%s(%s)", p.Name, p.Namespace, p.UID) }
