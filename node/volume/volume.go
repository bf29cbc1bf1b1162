// Package volume mounts the volumes of the Pods of a node before their containers start, refreshes their contents while
// they run, and unmounts and removes them when the Pod has ended.
//
// The state is on disk, below <data>/pods/<uid>, and in the kernel's mount table; what is in memory is only a cache. An
// agent that was killed at any moment continues from there: Mount finds what is ready already, and Unmount needs no
// more than the UID.
//
// Contents (ConfigMaps, Secrets, tokens, fields of the Pod) are written when they change, not periodically: see
// refresh.go. setup.go dispatches by the type of the volume; each type has a file of its own.
package volume

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/node/agentmetrics"
	"proa.dev/node/cri"
	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/objects"
	"proa.dev/node/podcredential"
	"proa.dev/node/podtrace"
)

// mountTimeout is how long Mount tries before it reports what is missing; the next call continues.
const mountTimeout = 2*time.Minute + 3*time.Second

// Config is what Volumes needs.
type Config struct {
	// Dir is the data folder of the agent, Node the name of the node.
	Dir, Node string
	Client    client.Client
	Refs      *objects.Refs
	Events    event.Recorder
	Images    Images
	// Drivers mounts the volumes of CSI drivers; it may be nil.
	Drivers Drivers
	// Allocatable returns what Pods may use of this node.
	Allocatable func() corev1.ResourceList
	// Recursive reports whether the runtime of a Pod supports recursive read-only mounts.
	Recursive func(*corev1.Pod) bool
	// Metrics records the times of mounts; it may be nil.
	Metrics *agentmetrics.Metrics
	Log     *slog.Logger
}

// Images makes the images of image volumes present.
type Images interface {
	Ensure(ctx context.Context, p *corev1.Pod, c *corev1.Container, traced *podtrace.Work) (*cri.Image, error)
}

// Volumes manages the volumes of all Pods of a node.
type Volumes struct {
	Config
	certs    *podcredential.Manager
	queue    *queue
	contents contentsBudget

	// mu guards pods.
	mu   sync.Mutex
	pods map[types.UID]*podVolumes
}

// New makes the volume manager. Run refreshes volumes.
func New(p Config) *Volumes {
	v := &Volumes{Config: p, pods: map[types.UID]*podVolumes{}, queue: newQueue()}
	v.certs = podcredential.New(p.Client, p.Node, p.Events)
	v.Refs.OnChange(v.Wake)
	return v
}

// Mount mounts the volumes of a Pod, and returns when they are ready. It records Events about failures, retries until
// its timeout or ctx ends, and keeps what is ready. From then on contents are refreshed until Unmount.
func (v *Volumes) Mount(ctx context.Context, p *corev1.Pod) error {
	used := usedVolumes(p)
	if len(used) == 0 {
		return nil
	}
	if _, err := v.podDir(p.UID); err != nil {
		return err
	}
	if err := checkCounts(p, used); err != nil {
		v.Events.Event(event.Pod(p), corev1.EventTypeWarning, "FailedMount", "%s", err.Error())
		return err
	}
	k := v.volumesFor(p)
	limit, stop := context.WithTimeout(ctx, mountTimeout)
	defer stop()
	for {
		s, err := v.mountAll(limit, k, used)
		if err != nil || len(s.missing) == 0 {
			return err
		}
		if s.why != nil && ctx.Err() == nil {
			err := notMounted(s, s.why)
			v.Events.Event(event.Pod(p), corev1.EventTypeWarning, "FailedMount", "Unable to attach or mount volumes: %v", err)
			return err
		}
		select {
		case <-k.changed:
		case <-time.After(s.wait):
		case <-limit.Done():
			return notMounted(s, limit.Err())
		}
	}
}

// notMounted says which volumes are missing, in the words of Kubernetes.
func notMounted(s state, why error) error {
	return fmt.Errorf("unmounted volumes=%v, unattached volumes=%v, failed to process volumes=%v: %w", s.missing, s.detached, s.unknown, why)
}

// usedVolumes returns the volumes of a Pod that some container uses, in the order of the Pod. Others are not mounted.
func usedVolumes(p *corev1.Pod) (out []*corev1.Volume) {
	used := map[string]bool{}
	for c := range fact.AllContainers(p) {
		for i := range c.VolumeMounts {
			used[c.VolumeMounts[i].Name] = true
		}
		for i := range c.VolumeDevices {
			used[c.VolumeDevices[i].Name] = true
		}
	}
	for i := range p.Spec.Volumes {
		if used[p.Spec.Volumes[i].Name] {
			out = append(out, &p.Spec.Volumes[i])
		}
	}
	return out
}

// podDir returns the folder of a Pod. A UID comes from outside, so it is checked to be a single file name.
func (v *Volumes) podDir(uid types.UID) (string, error) {
	if !isFileName(string(uid)) {
		return "", fmt.Errorf("%q is no UID of a Pod", uid)
	}
	return filepath.Join(v.Dir, "pods", string(uid)), nil
}

// isFileName reports whether a name is a single file name.
func isFileName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// volumeDir returns the folder of a volume in the layout of kubelets: pods/<uid>/volumes/kubernetes.io~secret/<name>.
func (v *Volumes) volumeDir(uid types.UID, plugin, name string) string {
	return filepath.Join(v.Dir, "pods", string(uid), "volumes", escapePluginName(plugin), name)
}

// escapePluginName returns the name of a plugin as a file name.
func escapePluginName(plugin string) string { return strings.ReplaceAll(plugin, "/", "~") }
