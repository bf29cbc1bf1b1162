// Package csi mounts the volumes of storage drivers. Drivers register themselves through package plugin and are then known by
// their names; the cluster learns of them from the CSINode and the Node. A volume is staged on the node once, and published
// for each Pod.
//
// What was done is noted on disk before it is done: a file vol_data.json in the folder of each volume of a Pod, and one beside
// each staged volume. Whoever comes after a killed agent takes everything back from there.
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
	"proa.dev/kinds/gr"
	"proa.dev/node/event"
	"proa.dev/node/objects"
	"proa.dev/node/plugin"
)

// timeout bounds every call of a driver.
const timeout = 2 * time.Minute

// pluginName is how folders and texts call all of this.
const pluginName = "kubernetes.io/csi"

// Config is what a node's drivers are kept with.
type Config struct {
	// Dir is the data folder of the agent, Node the name of the node.
	Dir, Node string
	Client    client.Client
	Refs      *objects.Refs
	Events    event.Recorder
	Log       *slog.Logger
}

// Drivers are the storage drivers of a node.
type Drivers struct {
	Config
	locks locks

	// mu guards named.
	mu    sync.Mutex
	named map[string]*driver
}

// New makes a node without drivers.
func New(c Config) *Drivers {
	return &Drivers{Config: c, named: map[string]*driver{}, locks: locks{held: map[string]*lock{}}}
}

// find returns a driver that is registered.
func (d *Drivers) find(name string) (*driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one := d.named[name]; one != nil {
		return one, nil
	}
	return nil, fmt.Errorf("driver name %s not found in the list of registered CSI drivers", name)
}

// Register takes a driver, and tells the cluster about it.
func (d *Drivers) Register(ctx context.Context, i plugin.Info) error {
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
		err = d.announce(limit, i.Name, info)
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
	if err := d.sweep(ctx, one); err != nil {
		d.Log.WarnContext(ctx, "a volume that nobody uses stays staged", "driver", i.Name, "err", err)
	}
	return nil
}

// Deregister forgets a driver. Its volumes stay mounted.
func (d *Drivers) Deregister(ctx context.Context, name string) {
	d.mu.Lock()
	old := d.named[name]
	delete(d.named, name)
	d.mu.Unlock()
	if old == nil {
		return
	}
	_ = old.close()
	if err := d.withdraw(ctx, name); err != nil {
		d.Log.WarnContext(ctx, "the CSINode still names a driver that has gone", "driver", name, "err", err)
	}
}

// Close ends the connections to drivers.
func (d *Drivers) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, one := range d.named {
		_ = one.close()
		delete(d.named, name)
	}
}

// object is what the cluster says about a driver; nil if it says nothing.
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

// staged is the folder of a volume that is staged: plugins/kubernetes.io/csi/<driver>/<hash of the volume>.
func (d *Drivers) staged(driver, handle string) string {
	return filepath.Join(d.Dir, "plugins", "kubernetes.io", "csi", driver, fmt.Sprintf("%x", sha256.Sum256([]byte(handle))))
}

// stagedBlock is where a block device is staged, and where it is published for each Pod.
func (d *Drivers) stagedBlock(volume string) (stage, publish string) {
	devices := filepath.Join(d.Dir, "plugins", "kubernetes.io", "csi", "volumeDevices")
	return filepath.Join(devices, "staging", volume), filepath.Join(devices, "publish", volume)
}

// locks are for one volume each, so that it is not staged for one Pod while it is unstaged for another.
type locks struct {
	mu   sync.Mutex // guards what is below
	held map[string]*lock
}

type lock struct {
	mu    sync.Mutex
	users int // who has it or waits for it; guarded by locks.mu
}

// take waits for a lock, and returns how to give it back.
func (l *locks) take(name string) (release func()) {
	l.mu.Lock()
	one := l.held[name]
	if one == nil {
		one = &lock{}
		l.held[name] = one
	}
	one.users++
	l.mu.Unlock()
	one.mu.Lock()
	return func() {
		one.mu.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(l.held, name)
		}
	}
}
