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

// volumeFolders are the folders of a Pod that have to do with its volumes.
func volumeFolders() []string {
	return []string{"volume-subpaths", "volumes", "volumeDevices", "plugins"}
}

// Unmount takes the volumes of a Pod away. It goes by what is on disk and what the kernel has mounted, and may be called again
// until it succeeds. Nothing is removed while something is mounted, and nothing outside of the Pod's folder ever is.
func (v *Volumes) Unmount(ctx context.Context, uid types.UID) error {
	dir, err := v.podDir(uid)
	if err != nil {
		return err
	}
	v.forget(uid)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// The parts that containers were shown hold on to the volumes.
	if err := mounts.Clear(filepath.Join(dir, "volume-subpaths")); err != nil {
		return fmt.Errorf("unmount the volumes of pod %s: %w", uid, err)
	}
	if err := v.unpublish(ctx, uid); err != nil {
		return err
	}
	disks, err := filepath.Glob(filepath.Join(dir, "volumes", escaped(pluginLocal), "*"))
	if err != nil {
		return err
	}
	if err := mounts.Clear(dir); err != nil {
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

// forget ends the work on the volumes of a Pod.
func (v *Volumes) forget(uid types.UID) {
	v.mu.Lock()
	k := v.pods[uid]
	delete(v.pods, uid)
	v.mu.Unlock()
	if k != nil {
		k.mu.Lock()
		k.gone = true
		k.stop()
		k.mu.Unlock()
		k.work.Lock()   // who works on them still sees it to the end
		k.work.Unlock() //nolint:staticcheck // to have waited is all
	}
	v.Refs.Drop(uid)
	v.certs.drop(uid)
}

// unpublish has drivers take back what is theirs.
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
	users, err := filepath.Glob(filepath.Join(v.Dir, "pods", "*", "volumes", escaped(pluginLocal), name))
	if err != nil || len(users) > 0 {
		return err
	}
	if err := mounts.Clear(dir); err != nil {
		return err
	}
	return os.Remove(dir)
}

// Remove removes all that a Pod has kept on this node, after Unmount.
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

// Left are the Pods that have a folder here.
func (v *Volumes) Left(context.Context) (out []types.UID, err error) {
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
