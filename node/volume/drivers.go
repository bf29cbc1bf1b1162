package volume

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Drivers mounts the volumes of CSI drivers. It keeps its state on disk: what Publish mounted, Unpublish finds by its
// folder.
type Drivers interface {
	// Publish mounts a volume for a Pod. It is idempotent. An error may be a *Failed.
	Publish(ctx context.Context, v *DriverVolume) (*Published, error)
	// Unpublish unmounts a volume from a Pod, and from the node if no other Pod here uses it.
	Unpublish(ctx context.Context, uid types.UID, dir string) error
	// InUse returns the volumes that are attached to this node and used by it.
	InUse() []corev1.UniqueVolumeName
}

// DriverVolume is a volume of a CSI driver for one Pod. Either Inline is set, or PV and Claim are.
type DriverVolume struct {
	Pod *corev1.Pod
	// Name is the name of the Pod's volume, or of the persistent volume.
	Name string
	// Dir is the folder of the volume: the driver's mount becomes Dir/mount, and for a block device Dir/<uid>.
	Dir    string
	Inline *corev1.CSIVolumeSource
	PV     *corev1.PersistentVolume
	Claim  *corev1.PersistentVolumeClaim
	// ReadOnly is set if the Pod's volume or the claim is read-only.
	ReadOnly, Block bool
	// ApplyFSGroup applies the fsGroup of the Pod to the volume.
	ApplyFSGroup func(ctx context.Context, dir string) error
}

// Published is a volume that a driver has mounted.
type Published struct {
	// Path is what containers get: a folder, or a device.
	Path   string
	Unique corev1.UniqueVolumeName
	// Labelled reports that the driver sets SELinux labels itself.
	Labelled bool
	// RepublishAt is when it must be published again, for drivers that require republishing; zero for never.
	RepublishAt time.Time
}

// OperationError is an error with the name of the operation as Events of Kubernetes have it, such as MountVolume.MountDevice.
type OperationError struct {
	Operation string
	Err       error
}

func (f *OperationError) Error() string { return f.Operation + ": " + f.Err.Error() }
func (f *OperationError) Unwrap() error { return f.Err }

// mountInlineCSI mounts a CSI volume that the Pod's spec defines itself.
func (v *Volumes) mountInlineCSI(ctx context.Context, p *corev1.Pod, name string, s *corev1.CSIVolumeSource, before *mounted) (*mounted,
	error) {
	d := &DriverVolume{Pod: p, Name: name, Dir: v.volumeDir(p.UID, pluginCSI, name), Inline: s, ReadOnly: isTrue(s.ReadOnly)}
	return v.publish(ctx, d, before)
}

// mountCSI mounts a CSI volume that a claim is bound to.
func (v *Volumes) mountCSI(ctx context.Context, p *corev1.Pod, b *bound, before *mounted) (*mounted, error) {
	d := &DriverVolume{
		Pod: p, Name: b.pv.Name, Dir: v.volumeDir(p.UID, pluginCSI, b.pv.Name), PV: b.pv, Claim: b.claim,
		ReadOnly: b.readOnly || b.pv.Spec.CSI.ReadOnly, Block: b.block(),
	}
	return v.publish(ctx, d, before)
}

func (v *Volumes) publish(ctx context.Context, d *DriverVolume, before *mounted) (*mounted, error) {
	if v.Drivers == nil {
		return nil, errors.New("this node has no storage drivers")
	}
	if before != nil && time.Now().Before(before.refreshAt) {
		return before, nil
	}
	d.ApplyFSGroup = func(ctx context.Context, dir string) error {
		if before != nil {
			return nil // it was applied when the volume was mounted first
		}
		return v.applyFSGroup(ctx, d.Pod, dir)
	}
	got, err := v.Drivers.Publish(ctx, d)
	if f, ok := errors.AsType[*OperationError](err); ok {
		return nil, &operationError{f.Operation + " failed", f.Err}
	}
	if err != nil {
		return nil, err
	}
	m := &mounted{path: got.Path, readOnly: d.ReadOnly, relabel: !d.ReadOnly && !got.Labelled, unique: got.Unique,
		live: !got.RepublishAt.IsZero(), refreshAt: got.RepublishAt}
	if d.Block {
		link, err := v.linkDevice(d.Pod, pluginCSI, d.Name, got.Path)
		if err != nil {
			return nil, &operationError{"MapVolume.MapBlockVolume failed", err}
		}
		m.path, m.device = "", link
	}
	return m, nil
}

// InUse returns the attached volumes that Pods of this node use or are about to use, sorted: they must not be detached.
func (v *Volumes) InUse() (out []corev1.UniqueVolumeName) {
	if v.Drivers != nil {
		out = v.Drivers.InUse()
	}
	v.mu.Lock()
	all := slices.Collect(maps.Values(v.pods))
	v.mu.Unlock()
	for _, k := range all {
		_, ready, _ := k.current()
		for _, m := range ready {
			if m.unique != "" {
				out = append(out, m.unique)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// driverDirs returns the folders of a Pod's CSI volumes.
func (v *Volumes) driverDirs(uid types.UID) ([]string, error) {
	return filepath.Glob(filepath.Join(v.Dir, "pods", string(uid), "volumes", escapePluginName(pluginCSI), "*"))
}
