package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/volume/mounts"
)

// volumeFolders returns the folders of a Pod that belong to its volumes.
func volumeFolders() []string {
	return []string{"volume-subpaths", "volumes", "volumeDevices", "plugins"}
}

// Unmount unmounts the volumes of a Pod. It works from what is on disk and in the kernel's mount table, and may be
// repeated until it succeeds. Nothing is removed while something is mounted below it, and nothing outside of the Pod's
// folder ever is.
func (v *Volumes) Unmount(ctx context.Context, uid types.UID) error {
	err := v.unmount(ctx, uid)
	if err == nil {
		v.contents.drop(uid)
	}
	return err
}

func (v *Volumes) unmount(ctx context.Context, uid types.UID) error {
	dir, err := v.podDir(uid)
	if err != nil {
		return err
	}
	v.forget(uid)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// Mounts of subPaths keep the volumes busy.
	if err := mounts.UnmountAll(filepath.Join(dir, "volume-subpaths")); err != nil {
		return fmt.Errorf("unmount the volumes of pod %s: %w", uid, err)
	}
	if err := v.unpublish(ctx, uid); err != nil {
		return err
	}
	disks, err := filepath.Glob(filepath.Join(dir, "volumes", escapePluginName(pluginLocal), "*"))
	if err != nil {
		return err
	}
	if err := mounts.UnmountAll(dir); err != nil {
		return fmt.Errorf("unmount the volumes of pod %s: %w", uid, err)
	}
	for _, name := range volumeFolders() {
		if err := mounts.Remove(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("remove the volumes of pod %s: %w", uid, err)
		}
	}
	for _, d := range disks {
		if err := v.releaseDisk(filepath.Base(d)); err != nil {
			return err
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
		v.Log.DebugContext(ctx, "the folder of a Pod stays, because others keep something in it", "pod", uid, "err", err)
	}
	return nil
}

// forget ends the work on the volumes of a Pod, and waits for its end.
func (v *Volumes) forget(uid types.UID) {
	v.mu.Lock()
	k := v.pods[uid]
	delete(v.pods, uid)
	v.mu.Unlock()
	if k != nil {
		k.mu.Lock()
		k.unmounted = true
		k.stopTimer()
		if k.cancel != nil {
			k.cancel()
		}
		k.mu.Unlock()
		k.changed.Send()
		k.work.Lock()   // waits for the work that is going on
		k.work.Unlock() //nolint:staticcheck // SA2001: locking waits for the running work
	}
	v.Refs.Drop(uid)
	v.certs.Drop(uid)
}

// unpublish unmounts the CSI volumes of a Pod.
func (v *Volumes) unpublish(ctx context.Context, uid types.UID) error {
	dirs, err := v.driverDirs(uid)
	if err != nil || len(dirs) == 0 {
		return err
	}
	if v.Drivers == nil {
		return fmt.Errorf("pod %s has volumes of storage drivers, and this node has no drivers", uid)
	}
	for _, d := range dirs {
		if err := v.Drivers.Unpublish(ctx, uid, d); err != nil {
			return fmt.Errorf("unmount %s: %w", d, err)
		}
	}
	return nil
}

// releaseDisk unmounts a disk of this node that no Pod uses any more.
func (v *Volumes) releaseDisk(name string) error {
	dir := v.diskDir(name)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	users, err := filepath.Glob(filepath.Join(v.Dir, "pods", "*", "volumes", escapePluginName(pluginLocal), name))
	if err != nil || len(users) > 0 {
		return err
	}
	if err := mounts.UnmountAll(dir); err != nil {
		return err
	}
	return os.Remove(dir)
}

// Remove removes the folder of a Pod, after Unmount.
func (v *Volumes) Remove(ctx context.Context, uid types.UID) error {
	if err := v.Unmount(ctx, uid); err != nil {
		return err
	}
	dir, err := v.podDir(uid)
	if err != nil {
		return err
	}
	return mounts.Remove(dir)
}

// PodUIDs returns the Pods that have a folder on this node.
func (v *Volumes) PodUIDs(context.Context) (out []types.UID, err error) {
	all, err := os.ReadDir(filepath.Join(v.Dir, "pods"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for volumes: %w", err)
	}
	for _, e := range all {
		out = append(out, types.UID(e.Name()))
	}
	return out, nil
}
