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

	"proa.dev/kinds/gr"
)

// goneFor is how long a driver may be away before the devices that it offers go too: long enough for it to be replaced. A wipe
// that fails is tried again, after wipeFirst and at most wipeLast.
const (
	goneFor   = 30 * time.Second
	wipeFirst = time.Second
	wipeLast  = 5 * time.Minute
)

// Run takes back what drivers offer that are gone, until ctx ends: their ResourceSlices would bring Pods here that can never start.
// No driver is here yet when an agent begins, and who comes says again what it has; so all slices of the node go first.
func (m *Manager) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wiped := map[string]context.CancelFunc{} // or about to be
	wipe := func(name string, after time.Duration) {
		own, stop := context.WithCancel(ctx)
		wiped[name] = stop
		wg.Go(func() { m.wipe(own, name, after) })
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
				wipe(name, goneFor)
			}
		}
		select {
		case <-ctx.Done():
			for _, stop := range wiped {
				stop()
			}
			return
		case <-m.news:
		}
	}
}

// reachable says of every driver that was ever here whether it can be asked.
func (m *Manager) reachable() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]bool{}
	for name, all := range m.drivers {
		out[name] = slices.ContainsFunc(all, func(d *driver) bool { return d.reachable })
	}
	return out
}

// wipe deletes the slices of a driver of this node, or of all, after some time; again and again until it is done or ctx ends.
func (m *Manager) wipe(ctx context.Context, driver string, after time.Duration) {
	only := fields.Set{resourcev1.ResourceSliceSelectorNodeName: m.Node}
	if driver != "" {
		only[resourcev1.ResourceSliceSelectorDriver] = driver
	}
	for retry := wipeFirst; ; retry = min(2*retry, wipeLast) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(after):
		}
		err := m.Cluster.DeleteAll(ctx, gr.ResourceSlices, "", only, metav1.DeleteOptions{})
		if err == nil || apierrors.IsNotFound(err) {
			return
		}
		m.Log.DebugContext(ctx, "the ResourceSlices of a driver that is gone cannot be deleted; it is tried again", "driver", driver, "err", err)
		after = retry
	}
}

// follow notes whether a driver can be reached, until ctx or its connection ends.
func (m *Manager) follow(ctx context.Context, d *driver) {
	for {
		state := d.conn.GetState()
		m.mu.Lock()
		changed := d.reachable != (state == connectivity.Ready)
		d.reachable = state == connectivity.Ready
		m.mu.Unlock()
		if changed {
			m.look()
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

// look lets Run look which drivers there are.
func (m *Manager) look() {
	select {
	case m.news <- struct{}{}:
	default: // it will anyway
	}
}
