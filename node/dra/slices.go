package dra

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/connectivity"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"proa.dev/internal/wait"
	"proa.dev/kinds/lib/gr"
)

// removedAfter is how long a driver may be away before its ResourceSlices are deleted: long enough for it to be replaced.
// firstRetry and lastRetry are the back-off of a deletion that fails.
const (
	removedAfter = 30 * time.Second
	firstRetry   = time.Second
	lastRetry    = 5 * time.Minute
)

// Run deletes the ResourceSlices of drivers that have disappeared, until ctx ends: otherwise Pods would be scheduled
// here that can never start. When an agent starts no driver is registered, and drivers publish their slices again; so
// all slices of the node are deleted first.
func (m *Manager) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wiped := map[string]context.CancelFunc{} // drivers whose slices are deleted or about to be
	wipe := func(name string, after time.Duration) {
		own, stop := context.WithCancel(ctx)
		wiped[name] = stop
		wg.Go(func() { m.deleteSlices(own, name, after) })
	}
	wipe("", 0)
	for {
		for name, here := range m.reachable() {
			stop, done := wiped[name]
			switch {
			case here && done:
				stop()
				delete(wiped, name)
			case !here && !done:
				wipe(name, removedAfter)
			}
		}
		select {
		case <-ctx.Done():
			for _, stop := range wiped {
				stop()
			}
			return
		case <-m.driversChanged:
		}
	}
}

// reachable reports for every driver that ever registered whether it can be reached.
func (m *Manager) reachable() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]bool{}
	for name, all := range m.drivers {
		out[name] = slices.ContainsFunc(all, func(d *driver) bool { return d.reachable })
	}
	return out
}

// deleteSlices deletes the slices of a driver of this node, or of all drivers, after some time, with retries until it is done
// or ctx ends.
func (m *Manager) deleteSlices(ctx context.Context, driver string, after time.Duration) {
	only := fields.Set{resourcev1.ResourceSliceSelectorNodeName: m.Node}
	if driver != "" {
		only[resourcev1.ResourceSliceSelectorDriver] = driver
	}
	retry := wait.Backoff{First: firstRetry, Max: lastRetry}
	for wait.Sleep(ctx, after) == nil {
		err := m.Cluster.DeleteAll(ctx, gr.ResourceSlices, "", only, metav1.DeleteOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			return
		}
		m.Log.DebugContext(ctx, "the ResourceSlices of a removed driver cannot be deleted; retrying", "driver", driver, "err", err)
		after = retry.Next()
	}
}

// follow records whether a driver can be reached, until ctx or its connection ends.
func (m *Manager) follow(ctx context.Context, d *driver) {
	for {
		state := d.conn.GetState()
		m.mu.Lock()
		changed := d.reachable != (state == connectivity.Ready)
		d.reachable = state == connectivity.Ready
		m.mu.Unlock()
		if changed {
			m.driversChanged.Send()
		}
		switch state {
		case connectivity.Shutdown:
			return
		case connectivity.Idle:
			d.conn.Connect()
		}
		if !d.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}
