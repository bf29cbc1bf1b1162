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

// Drivers mount the volumes of storage drivers. Like all of this they go by what is on disk: what Publish made, Unpublish
// finds by its folder.
type Drivers interface {
	// Publish makes a volume ready for a Pod. It may be called again, and then makes sure of it. An error may be a *Failed.
	Publish(ctx context.Context, v *DriverVolume) (*Published, error)
	// Unpublish takes a volume away from a Pod, and from the node if no other Pod here uses it.
	Unpublish(ctx context.Context, uid types.UID, dir string) error
	// InUse are the volumes that are attached to this node and used by it.
	InUse() []corev1.UniqueVolumeName
}

// DriverVolume is a volume that a driver provides, for one Pod. Either Inline is set, or PV and Claim are.
type DriverVolume struct {
	Pod *corev1.Pod
	// Name is that of the volume of the Pod, or of the persistent volume.
	Name string
	// Dir is the folder of the volume: the driver's mount becomes Dir/mount, and for a block device Dir/<uid>.
	Dir    string
	Inline *corev1.CSIVolumeSource
	PV     *corev1.PersistentVolume
	Claim  *corev1.PersistentVolumeClaim
	// ReadOnly is what the Pod says; the claim may say so too.
	ReadOnly, Block bool
	// Give gives the volume to the group of the Pod.
	Give func(ctx context.Context, dir string) error
}

// Published is a volume that a driver has made ready.
type Published struct {
	// Path is what containers get: a folder, or a device.
	Path   string
	Unique corev1.UniqueVolumeName
	// Labelled says that the driver takes care of labels itself.
	Labelled bool
	// Again is when it must be published again, for drivers that want that; zero for never.
	Again time.Time
}

// Failed is an error with the name of the operation that people know from Events, such as MountVolume.MountDevice.
type Failed struct {
	Operation string
	Err       error
}

func (f *Failed) Error() string { return f.Operation + ": " + f.Err.Error() }
func (f *Failed) Unwrap() error { return f.Err }

// inline makes a volume ready that a Pod asks a driver for itself.
func (v *Volumes) inline(ctx context.Context, p *corev1.Pod, name string, s *corev1.CSIVolumeSource, before *mounted) (*mounted, error) {
	d := &DriverVolume{Pod: p, Name: name, Dir: v.volumeDir(p.UID, pluginCSI, name), Inline: s, ReadOnly: isTrue(s.ReadOnly)}
	return v.publish(ctx, d, before)
}

// driven makes a volume ready that a driver has provided for a claim.
func (v *Volumes) driven(ctx context.Context, p *corev1.Pod, b *bound, before *mounted) (*mounted, error) {
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
	if before != nil && time.Now().Before(before.again) {
		return before, nil
	}
	d.Give = func(ctx context.Context, dir string) error {
		if before != nil {
			return nil // it was given away when it was made
		}
		return v.give(ctx, d.Pod, dir)
	}
	got, err := v.Drivers.Publish(ctx, d)
	if f, ok := errors.AsType[*Failed](err); ok {
		return nil, &step{f.Operation + " failed", f.Err}
	}
	if err != nil {
		return nil, err
	}
	m := &mounted{path: got.Path, readOnly: d.ReadOnly, ours: !d.ReadOnly && !got.Labelled, unique: got.Unique, live: !got.Again.IsZero(), again: got.Again}
	if d.Block {
		link, err := v.linkDevice(d.Pod, pluginCSI, d.Name, got.Path)
		if err != nil {
			return nil, &step{"MapVolume.MapBlockVolume failed", err}
		}
		m.path, m.device = "", link
	}
	return m, nil
}

// InUse are the attached volumes that Pods of this node use or are about to use, sorted: they must not be detached.
func (v *Volumes) InUse() (out []corev1.UniqueVolumeName) {
	if v.Drivers != nil {
		out = v.Drivers.InUse()
	}
	v.mu.Lock()
	all := slices.Collect(maps.Values(v.pods))
	v.mu.Unlock()
	for _, k := range all {
		_, ready, _ := k.now()
		for _, m := range ready {
			if m.unique != "" {
				out = append(out, m.unique)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// driverDirs are the folders of what drivers have made for a Pod.
func (v *Volumes) driverDirs(uid types.UID) ([]string, error) {
	return filepath.Glob(filepath.Join(v.Dir, "pods", string(uid), "volumes", escaped(pluginCSI), "*"))
}
