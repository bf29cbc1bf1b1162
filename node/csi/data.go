package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

const dataFile = "vol_data.json"

// data is what is noted on disk about a volume, beside its mount.
type data struct {
	Driver string                        `json:"driverName"`
	Handle string                        `json:"volumeHandle"`
	Name   string                        `json:"specVolID,omitempty"`
	Node   string                        `json:"nodeName,omitempty"`
	Life   storagev1.VolumeLifecycleMode `json:"volumeLifecycleMode,omitempty"`
	// Attachment is the object that says that the volume is attached; empty if it never is.
	Attachment string `json:"attachmentID,omitempty"`
	// Target is where the driver was asked to publish the volume, Stage where it was asked to stage it.
	Target string `json:"target,omitempty"`
	Stage  string `json:"stage,omitempty"`
	Block  bool   `json:"block,omitempty"`
}

// unique is how the status of a Node calls the volume.
func (d data) unique() corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(pluginName + "/" + d.key())
}

func (d data) key() string { return d.Driver + "^" + d.Handle }

// save notes it, at once and for good: nothing that follows may happen without it.
func (d data) save(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, dataFile)
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("save %s: %w", name, err)
	}
	return os.Rename(name+".new", name)
}

// load reads what was noted; found is false if nothing was.
func load(dir string) (d data, found bool, err error) {
	text, err := os.ReadFile(filepath.Join(dir, dataFile))
	if errors.Is(err, fs.ErrNotExist) {
		return d, false, nil
	}
	if err != nil {
		return d, false, err
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d, false, fmt.Errorf("read %s: %w", filepath.Join(dir, dataFile), err)
	}
	return d, true, nil
}

// erase removes the folder of a volume, which must be empty but for what was noted.
func erase(dir string) error {
	for _, name := range []string{dataFile + ".new", dataFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// used are the volumes that Pods of this node have.
func (d *Drivers) used() (out []data) {
	dirs, err := filepath.Glob(filepath.Join(d.Dir, "pods", "*", "volumes", "kubernetes.io~csi", "*"))
	if err != nil {
		return nil
	}
	for _, dir := range dirs {
		if one, found, err := load(dir); err == nil && found {
			out = append(out, one)
		}
	}
	return out
}

// InUse are the volumes that are attached to this node and used by it.
func (d *Drivers) InUse() (out []corev1.UniqueVolumeName) {
	for _, one := range d.used() {
		if one.Attachment != "" {
			out = append(out, one.unique())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
