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

// Unpublish takes a volume away from a Pod, by the folder of the volume, and from the node if no other Pod uses it.
func (d *Drivers) Unpublish(ctx context.Context, _ types.UID, dir string) error {
	note, found, err := load(dir)
	if err != nil {
		return err
	}
	if !found {
		return nil // nothing was begun, or all of it is over
	}
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	defer d.locks.take(note.key())()
	one, err := d.find(note.Driver)
	if err != nil {
		return saying("Unmounter.TearDownAt failed to get CSI client: %w", err)
	}
	if _, err := one.NodeUnpublishVolume(ctx, &spec.NodeUnpublishVolumeRequest{VolumeId: note.Handle, TargetPath: note.Target}); err != nil {
		return saying("Unmounter.TearDownAt failed: %w", err)
	}
	// The driver removes the target; some forget to.
	if is, err := mounts.Is(note.Target); is || err != nil {
		return errors.Join(err, saying("Unmounter.TearDownAt failed: the driver left %s mounted", note.Target))
	}
	if err := os.Remove(note.Target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return saying("Unmounter.TearDownAt failed to clean mount dir [%s]: %w", note.Target, err)
	}
	shared := slices.ContainsFunc(d.used(), func(o data) bool { return o.key() == note.key() && o.Target != note.Target })
	if !shared {
		if err := d.unstage(ctx, one, note); err != nil {
			return err
		}
	}
	return erase(dir)
}

// unstage takes a volume away from the node.
func (d *Drivers) unstage(ctx context.Context, one *driver, note data) error {
	if note.Block {
		_, publish := d.stagedBlock(note.Name)
		_ = os.Remove(publish)
	}
	if note.Stage == "" {
		return nil
	}
	if _, err := one.NodeUnstageVolume(ctx, &spec.NodeUnstageVolumeRequest{VolumeId: note.Handle, StagingTargetPath: note.Stage}); err != nil {
		return saying("attacher.UnmountDevice failed: %w", err)
	}
	if is, err := mounts.Is(note.Stage); is || err != nil {
		return errors.Join(err, saying("attacher.UnmountDevice failed: the driver left %s mounted", note.Stage))
	}
	if err := mounts.Remove(note.Stage); err != nil {
		return saying("attacher.UnmountDevice failed to clean %s: %w", note.Stage, err)
	}
	if note.Block {
		return nil
	}
	return erase(filepath.Dir(note.Stage))
}

// sweep takes away what a driver has staged and no Pod uses: an agent was killed before it could.
func (d *Drivers) sweep(ctx context.Context, one *driver) error {
	dirs, err := filepath.Glob(filepath.Join(d.Dir, "plugins", "kubernetes.io", "csi", one.name, "*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		if err := d.sweepOne(ctx, one, dir); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

func (d *Drivers) sweepOne(ctx context.Context, one *driver, dir string) error {
	note, found, err := load(dir)
	if err != nil || !found || note.Driver != one.name {
		return err
	}
	defer d.locks.take(note.key())()
	// Who had the lock may have taken the volume away.
	if _, found, err := load(dir); err != nil || !found {
		return err
	}
	if slices.ContainsFunc(d.used(), func(o data) bool { return o.key() == note.key() }) {
		return nil
	}
	limit, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	return d.unstage(limit, one, note)
}
