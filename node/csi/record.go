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

// volumeRecord is what vol_data.json records about a volume.
type volumeRecord struct {
	Driver string                        `json:"driverName"`
	Handle string                        `json:"volumeHandle"`
	Name   string                        `json:"specVolID,omitempty"`
	Node   string                        `json:"nodeName,omitempty"`
	Life   storagev1.VolumeLifecycleMode `json:"volumeLifecycleMode,omitempty"`
	// Attachment is the name of the VolumeAttachment; empty if the volume is not attached.
	Attachment string `json:"attachmentID,omitempty"`
	// Target is where the driver was asked to publish the volume, Stage where it was asked to stage it.
	Target string `json:"target,omitempty"`
	Stage  string `json:"stage,omitempty"`
	Block  bool   `json:"block,omitempty"`
}

// unique returns the name of the volume in the status of a Node.
func (d volumeRecord) unique() corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName(pluginName + "/" + d.key())
}

func (d volumeRecord) key() string { return d.Driver + "^" + d.Handle }

// save writes it durably: no step may be done without its record.
func (d volumeRecord) save(dir string) error {
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

// load reads the record of a folder; found is false if there is none.
func load(dir string) (d volumeRecord, found bool, err error) {
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

// erase removes the folder of a volume, which must contain nothing but the record.
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

// used returns the volumes that Pods of this node have.
func (d *Drivers) used() (out []volumeRecord) {
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

// InUse returns the volumes that are attached to this node and used by it.
func (d *Drivers) InUse() (out []corev1.UniqueVolumeName) {
	for _, one := range d.used() {
		if one.Attachment != "" {
			out = append(out, one.unique())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
