package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/volume/mounts"
)

// Unpublish unmounts a volume from a Pod, by the folder of the volume, and from the node if no other Pod uses it.
func (d *Drivers) Unpublish(ctx context.Context, _ types.UID, dir string) error {
	note, found, err := load(dir)
	if err != nil {
		return err
	}
	if !found {
		return nil // nothing was begun, or everything is undone
	}
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	defer d.locks.Lock(note.key())()
	one, err := d.find(note.Driver)
	if err != nil {
		return pluginError("Unmounter.TearDownAt failed to get CSI client: %w", err)
	}
	if _, err := one.NodeUnpublishVolume(ctx,
		&spec.NodeUnpublishVolumeRequest{VolumeId: note.Handle, TargetPath: note.Target}); err != nil {
		return pluginError("Unmounter.TearDownAt failed: %w", err)
	}
	// The driver must remove the target; some do not.
	if is, err := mounts.IsMountPoint(note.Target); is || err != nil {
		return errors.Join(err, pluginError("Unmounter.TearDownAt failed: the driver left %s mounted", note.Target))
	}
	if err := os.Remove(note.Target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pluginError("Unmounter.TearDownAt failed to clean mount dir [%s]: %w", note.Target, err)
	}
	shared := slices.ContainsFunc(d.used(), func(o volumeRecord) bool { return o.key() == note.key() && o.Target != note.Target })
	if !shared {
		if err := d.unstage(ctx, one, note); err != nil {
			return err
		}
	}
	return erase(dir)
}

// unstage unstages a volume.
func (d *Drivers) unstage(ctx context.Context, one *driver, note volumeRecord) error {
	if note.Block {
		_, publish := d.stagedBlock(note.Name)
		_ = os.Remove(publish)
	}
	if note.Stage == "" {
		return nil
	}
	if _, err := one.NodeUnstageVolume(ctx,
		&spec.NodeUnstageVolumeRequest{VolumeId: note.Handle, StagingTargetPath: note.Stage}); err != nil {
		return pluginError("attacher.UnmountDevice failed: %w", err)
	}
	if is, err := mounts.IsMountPoint(note.Stage); is || err != nil {
		return errors.Join(err, pluginError("attacher.UnmountDevice failed: the driver left %s mounted", note.Stage))
	}
	if err := mounts.Remove(note.Stage); err != nil {
		return pluginError("attacher.UnmountDevice failed to clean %s: %w", note.Stage, err)
	}
	if note.Block {
		return nil
	}
	return erase(filepath.Dir(note.Stage))
}

// unstageUnused unstages volumes of a driver that no Pod uses, left behind by an agent that was killed.
func (d *Drivers) unstageUnused(ctx context.Context, one *driver) error {
	dirs, err := filepath.Glob(filepath.Join(d.Dir, "plugins", "kubernetes.io", "csi", one.name, "*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		if err := d.unstageIfUnused(ctx, one, dir); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

func (d *Drivers) unstageIfUnused(ctx context.Context, one *driver, dir string) error {
	note, found, err := load(dir)
	if err != nil || !found || note.Driver != one.name {
		return err
	}
	defer d.locks.Lock(note.key())()
	// The volume may have been unstaged while waiting for the lock.
	if _, found, err := load(dir); err != nil || !found {
		return err
	}
	if slices.ContainsFunc(d.used(), func(o volumeRecord) bool { return o.key() == note.key() }) {
		return nil
	}
	limit, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	return d.unstage(limit, one, note)
}
