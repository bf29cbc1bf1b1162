// Package volume keeps the volumes of the Pods of a node: it makes them ready before the containers start, keeps those with
// contents up to date while they run, and takes everything away when the Pod has gone.
//
// What a Pod has is on disk, below <data>/pods/<uid>, and in the kernel's table of mounts; nothing that matters is only in
// memory. An agent that was killed at any moment goes on from there: Mount finds what is ready already, and Unmount needs no
// more than the UID.
//
// Contents (ConfigMaps, Secrets, tokens, fields of the Pod) are written when they change, not when a minute has passed: see
// keep.go. What is mounted where, by type of volume, is decided in setup.go and the file of the type.
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
	"proa.dev/node/cri"
	"proa.dev/node/event"
	"proa.dev/node/objects"
)

// patience is how long Mount tries before it says what is missing; the next call goes on.
const patience = 2*time.Minute + 3*time.Second

// Parts is what volumes are made with.
type Parts struct {
	// Dir is the data folder of the agent, Node the name of the node.
	Dir, Node string
	Client    client.Client
	Refs      *objects.Refs
	Events    event.Recorder
	Images    Images
	// Drivers mount what storage drivers provide; nil where there are none.
	Drivers Drivers
	// Allocatable is what Pods may use of this node.
	Allocatable func() corev1.ResourceList
	// Recursive says whether the runtime that a Pod asks for can make mounts read-only all the way down.
	Recursive func(*corev1.Pod) bool
	Log       *slog.Logger
}

// Images brings the images that volumes show.
type Images interface {
	Ensure(ctx context.Context, p *corev1.Pod, c *corev1.Container) (*cri.Image, error)
}

// Volumes are those of all Pods of a node.
type Volumes struct {
	Parts
	certs *certs
	queue *queue

	// mu guards pods.
	mu   sync.Mutex
	pods map[types.UID]*kept
}

// New makes a keeper of volumes. Run keeps them up to date.
func New(p Parts) *Volumes {
	v := &Volumes{Parts: p, pods: map[types.UID]*kept{}, queue: newQueue()}
	v.certs = &certs{client: p.Client, node: p.Node, events: p.Events, held: map[certKey]*cert{}}
	v.Refs.OnChange(v.wake)
	return v
}

// Mount makes the volumes of a Pod ready, and returns when they are. It tells what fails as it fails, tries again until its
// patience or ctx ends, and what is ready stays ready. From then on contents are kept up to date until Unmount.
func (v *Volumes) Mount(ctx context.Context, p *corev1.Pod) error {
	used := usedVolumes(p)
	if len(used) == 0 {
		return nil
	}
	if _, err := v.podDir(p.UID); err != nil {
		return err
	}
	k := v.keep(p)
	limit, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for {
		s, err := v.advance(limit, k, used)
		if err != nil || len(s.missing) == 0 {
			return err
		}
		if s.why != nil && ctx.Err() == nil {
			err := notMounted(s, s.why)
			v.Events.Event(p, "", corev1.EventTypeWarning, "FailedMount", "Unable to attach or mount volumes: %v", err)
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

// notMounted says which volumes are missing, in the words that people know.
func notMounted(s state, why error) error {
	return fmt.Errorf("unmounted volumes=%v, unattached volumes=%v, failed to process volumes=%v: %w", s.missing, s.detached, s.unknown, why)
}

// usedVolumes are the volumes of a Pod that some container uses, in the order of the Pod. Others are not made.
func usedVolumes(p *corev1.Pod) (out []*corev1.Volume) {
	used := map[string]bool{}
	for c := range containers(p) {
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

// podDir is the folder of a Pod. A UID comes from outside, and must not lead anywhere else.
func (v *Volumes) podDir(uid types.UID) (string, error) {
	if !plain(string(uid)) {
		return "", fmt.Errorf("%q is no UID of a Pod", uid)
	}
	return filepath.Join(v.Dir, "pods", string(uid)), nil
}

// plain says that a name is one name of a file and nothing more.
func plain(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// volumeDir is the folder of a volume, as kubelets lay it out: pods/<uid>/volumes/kubernetes.io~secret/<name>.
func (v *Volumes) volumeDir(uid types.UID, plugin, name string) string {
	return filepath.Join(v.Dir, "pods", string(uid), "volumes", escaped(plugin), name)
}

// escaped is a plugin's name as a file's.
func escaped(plugin string) string { return strings.ReplaceAll(plugin, "/", "~") }
