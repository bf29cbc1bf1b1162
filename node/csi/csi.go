// Package csi mounts the volumes of CSI drivers. Drivers register themselves through package pluginregistration and are
// published in the CSINode and the Node. A volume is staged once on the node, and published for each Pod.
//
// Every step is recorded on disk before it is done: in a file vol_data.json in the folder of each volume of a Pod, and
// one beside each staged volume. An agent that follows a killed one can undo everything from there.
package csi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/event"
	"proa.dev/node/keymutex"
	"proa.dev/node/objects"
	"proa.dev/node/pluginregistration"
)

// timeout is the timeout of the calls for one volume.
const timeout = 2 * time.Minute

// pluginName is the name of the CSI plugin in folders and messages.
const pluginName = "kubernetes.io/csi"

// Config is what Drivers needs.
type Config struct {
	// Dir is the data folder of the agent, Node the name of the node.
	Dir, Node string
	Client    client.Client
	Refs      *objects.Refs
	Events    event.Recorder
	Log       *slog.Logger
}

// Drivers are the registered CSI drivers of a node.
type Drivers struct {
	Config
	locks keymutex.Mutex // by volume: it is not staged for one Pod while it is unstaged for another

	// mu guards named.
	mu    sync.Mutex
	named map[string]*driver
}

// New makes a Drivers without any driver.
func New(c Config) *Drivers {
	return &Drivers{Config: c, named: map[string]*driver{}}
}

// find returns a registered driver.
func (d *Drivers) find(name string) (*driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one := d.named[name]; one != nil {
		return one, nil
	}
	return nil, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
}

// Register registers a driver and publishes it.
func (d *Drivers) Register(ctx context.Context, i pluginregistration.Info) error {
	if err := supported(i); err != nil {
		return err
	}
	if i.Name != filepath.Base(i.Name) {
		return fmt.Errorf("%q is no name of a CSI driver", i.Name)
	}
	one, err := dial(i.Name, i.Endpoint)
	if err != nil {
		return err
	}
	limit, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	info, err := one.info(limit)
	if err == nil {
		err = d.publishDriver(limit, i.Name, info)
	}
	if err != nil {
		return errors.Join(err, one.close())
	}
	d.mu.Lock()
	old := d.named[i.Name]
	d.named[i.Name] = one
	d.mu.Unlock()
	if old != nil {
		_ = old.close()
	}
	if err := d.unstageUnused(ctx, one); err != nil {
		d.Log.WarnContext(ctx, "an unused volume stays staged", "driver", i.Name, "err", err)
	}
	return nil
}

// Deregister removes a driver. Its volumes stay mounted.
func (d *Drivers) Deregister(ctx context.Context, name string) {
	d.mu.Lock()
	old := d.named[name]
	delete(d.named, name)
	d.mu.Unlock()
	if old == nil {
		return
	}
	_ = old.close()
	if err := d.removeDriverFromCluster(ctx, name); err != nil {
		d.Log.WarnContext(ctx, "the CSINode still names a driver that has been removed", "driver", name, "err", err)
	}
}

// Close closes the connections to drivers.
func (d *Drivers) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, one := range d.named {
		_ = one.close()
		delete(d.named, name)
	}
}

// object returns the CSIDriver object of a driver; nil if there is none.
func (d *Drivers) object(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	o, err := d.Client.Get(ctx, gr.CSIDrivers, "", name, "")
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	one, ok := o.(*storagev1.CSIDriver)
	if !ok {
		return nil, fmt.Errorf("CSIDriver %s is a %T", name, o)
	}
	return one, nil
}

// staged returns the folder of a staged volume: plugins/kubernetes.io/csi/<driver>/<hash of the volume>.
func (d *Drivers) staged(driver, handle string) string {
	return filepath.Join(d.Dir, "plugins", "kubernetes.io", "csi", driver, fmt.Sprintf("%x", sha256.Sum256([]byte(handle))))
}

// stagedBlock returns where a block device is staged, and where it is published for each Pod.
func (d *Drivers) stagedBlock(volume string) (stage, publish string) {
	devices := filepath.Join(d.Dir, "plugins", "kubernetes.io", "csi", "volumeDevices")
	return filepath.Join(devices, "staging", volume), filepath.Join(devices, "publish", volume)
}
