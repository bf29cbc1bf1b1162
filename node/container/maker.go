// Package container translates the spec of a Pod to the configuration of the container runtime: the sandbox with its
// hostname, name servers and namespaces, and each container with its command, environment, mounts, identity and limits.
// Nearly all of it is pure; the few files that it writes (/etc/hosts, termination messages, user id ranges) are in the
// folder of their Pod and are removed with it.
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
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/cgroup"
	"proa.dev/node/event"
)

// Refs reads the objects that Pods refer to. An object that does not exist is a NotFound error of the API.
type Refs interface {
	ConfigMap(ctx context.Context, p *corev1.Pod, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, p *corev1.Pod, name string) (*corev1.Secret, error)
}

// Getter reads single objects; client.Client implements it.
type Getter interface {
	Get(ctx context.Context, resource schema.GroupResource, namespace, name, sub string) (kind.Object, error)
}

// Config is what a Maker needs.
type Config struct {
	// Data is the data folder of the agent.
	Data    string
	Refs    Refs
	Cluster Getter
	// Services are the Services of the cluster; nil for an agent without a cluster.
	Services client.View
	Events   event.Recorder

	// Parent returns the cgroup of a Pod.
	Parent func(*corev1.Pod) string
	// NodeIPs returns the addresses of the node, those of the preferred family first.
	NodeIPs func() []netip.Addr
	// Allocatable returns what Pods may use of the node.
	Allocatable func() corev1.ResourceList

	DNS    DNS
	Limits Limits
	Users  Users
	// SeccompDefault gives containers without a seccomp profile that of the runtime instead of none.
	SeccompDefault bool
	// SELinux reports whether mounts must be relabelled.
	SELinux bool
	// Groups returns further supplemental groups of a Pod, which its volumes require; it may be nil.
	Groups func(*corev1.Pod) []int64
}

// Limits configures the resource limits of containers.
type Limits struct {
	Host cgroup.Host
	// Memory and Swap are the capacity of the machine, in bytes.
	Memory, Swap int64
	// Policy is the policy of the Pods' cgroups, so that containers and Pods agree.
	Policy cgroup.Policy
	// AllowSwap lets Burstable containers use swap, in proportion to the memory they request.
	AllowSwap bool
	// SingleProcessOOM makes the kernel kill only the process that ran out of memory and not its whole container.
	SingleProcessOOM bool
	// Pin returns the CPUs and NUMA nodes of a container; it may be nil.
	Pin func(p *corev1.Pod, c *corev1.Container) Pin
}

// Pin is where a container runs, as lists in the kernel's notation: "0-3,7".
type Pin struct {
	CPUs, Memory string
	// Exclusive reports that no other container has these CPUs, so that no quota is needed.
	Exclusive bool
}

// Maker makes configurations for the runtime. It implements pod.Maker.
type Maker struct {
	Config
	masked func() []string
	// users guards the allocation of user ids: see users.go.
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

// Hash covers the fields of a container whose change requires a restart: its name and image.
func (m *Maker) Hash(c *corev1.Container) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%q %q", c.Name, c.Image)
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// Handler returns the runtime handler of the Pod's RuntimeClass, empty for the default.
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

// PodDir returns the folder of a Pod.
func (m *Maker) PodDir(uid types.UID) string { return filepath.Join(m.Data, "pods", string(uid)) }

// LogDir returns the folder of the logs of a Pod.
func (m *Maker) LogDir(p *corev1.Pod) string {
	return filepath.Join(m.Data, "logs", "pods", p.Namespace+"_"+p.Name+"_"+string(p.UID))
}
