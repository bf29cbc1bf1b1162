package dra

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	reports "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"proa.dev/internal/wait"
)

// Limits of health reports.
const (
	// validFor is how long a report is valid if the driver does not say.
	validFor = 30 * time.Second
	// longest is the longest validity of a report.
	longest = 24 * time.Hour
	// healthRetry is the pause before the health stream of a driver is opened again.
	healthRetry = 5 * time.Second
	// maxReports limits how many devices of a driver may have a report.
	maxReports = 1 << 16
)

// report is the health of a device, valid until a time.
type report struct {
	health  corev1.ResourceHealthStatus
	message string
	until   time.Time
}

// deviceKey identifies a device of a driver.
type deviceKey struct{ pool, device string }

// healthServices returns the versions of the protocol, the newest first. The messages are the same in all.
func healthServices() []string {
	return []string{reports.DRAResourceHealthService, "v1alpha1.DRAResourceHealth"}
}

// followHealth follows the health reports of a driver until ctx ends. A driver need not implement them.
func (m *Manager) followHealth(ctx context.Context, name string, d *driver) {
	for ctx.Err() == nil {
		err := m.readHealth(ctx, name, d)
		m.dropReports(name)
		if status.Code(err) == codes.Unimplemented || wait.Sleep(ctx, healthRetry) != nil {
			return
		}
	}
}

func (m *Manager) readHealth(ctx context.Context, name string, d *driver) error {
	stream, err := d.conn.NewStream(ctx, &reports.DRAResourceHealth_ServiceDesc.Streams[0], "/"+d.health+"/NodeWatchResources")
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&reports.NodeWatchResourcesRequest{}); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		var r reports.NodeWatchResourcesResponse
		if err := stream.RecvMsg(&r); err != nil {
			return err
		}
		if err := m.recordHealth(name, r.Devices, time.Now()); err != nil {
			return err
		}
	}
}

// recordHealth records health reports, and wakes the Pods whose devices have changed.
func (m *Manager) recordHealth(name string, devices []*reports.DeviceHealth, now time.Time) error {
	m.mu.Lock()
	if m.reports[name] == nil {
		m.reports[name] = map[deviceKey]report{}
	}
	all := m.reports[name]
	var changed []deviceKey
	for _, d := range devices {
		at := deviceKey{d.GetDevice().GetPoolName(), d.GetDevice().GetDeviceName()}
		r := report{health: corev1.ResourceHealthStatusUnknown, message: truncateMessage(d.GetMessage()),
			until: time.Unix(d.GetLastUpdatedTime(), 0).Add(validity(d))}
		switch d.GetHealth() {
		case reports.HealthStatus_HEALTHY:
			r.health = corev1.ResourceHealthStatusHealthy
		case reports.HealthStatus_UNHEALTHY:
			r.health = corev1.ResourceHealthStatusUnhealthy
		}
		if before := m.reported(name, at, now); before.health != r.health || before.message != r.message {
			changed = append(changed, at)
		}
		all[at] = r
	}
	many := len(all)
	pods := m.podsWith(name, changed)
	m.scheduleExpiry(name, now)
	m.mu.Unlock()
	m.wakePods(pods)
	if many > maxReports {
		return fmt.Errorf("reports of %d devices are too many", many)
	}
	return nil
}

// validity returns how long a report is valid.
func validity(d *reports.DeviceHealth) time.Duration {
	if n := d.GetHealthCheckTimeoutSeconds(); n > 0 {
		return time.Duration(min(n, int64(longest/time.Second))) * time.Second
	}
	return validFor
}

// truncateMessage limits a message to what a status may hold.
func truncateMessage(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= corev1.ResourceHealthMessageMaxLength {
		return text
	}
	return strings.ToValidUTF8(text[:corev1.ResourceHealthMessageMaxLength-3], "") + "..."
}

// reported returns the present health of a device. The caller holds the lock.
func (m *Manager) reported(name string, at deviceKey, now time.Time) report {
	if r, found := m.reports[name][at]; found && !now.After(r.until) {
		return r
	}
	return report{health: corev1.ResourceHealthStatusUnknown}
}

// podsWith returns the Pods that have some devices of a driver, or any of them if some is nil. The caller holds the lock.
func (m *Manager) podsWith(name string, some []deviceKey) (out []types.UID) {
	for _, c := range m.claims {
		d := c.Drivers[name]
		if d == nil || !slices.ContainsFunc(d.Devices,
			func(x Device) bool { return some == nil || slices.Contains(some, deviceKey{x.Pool, x.Name}) }) {
			continue
		}
		for _, uid := range c.Pods {
			if !slices.Contains(out, uid) {
				out = append(out, uid)
			}
		}
	}
	slices.Sort(out)
	return out
}

// scheduleExpiry sets the timer for the next report of a driver that expires. The caller holds the lock.
func (m *Manager) scheduleExpiry(name string, now time.Time) {
	if t := m.timers[name]; t != nil {
		t.Stop()
		delete(m.timers, name)
	}
	var next time.Time
	for _, r := range m.reports[name] {
		if r.until.After(now) && (next.IsZero() || r.until.Before(next)) {
			next = r.until
		}
	}
	if next.IsZero() {
		return
	}
	m.timers[name] = time.AfterFunc(next.Sub(now)+time.Millisecond, func() {
		m.mu.Lock()
		pods := m.podsWith(name, nil)
		m.scheduleExpiry(name, time.Now())
		m.mu.Unlock()
		m.wakePods(pods)
	})
}

// dropReports drops the reports of a driver.
func (m *Manager) dropReports(name string) {
	m.mu.Lock()
	had := len(m.reports[name]) > 0
	delete(m.reports, name)
	m.scheduleExpiry(name, time.Now())
	pods := m.podsWith(name, nil)
	m.mu.Unlock()
	if had {
		m.wakePods(pods)
	}
}

func (m *Manager) wakePods(pods []types.UID) {
	if len(pods) > 0 && m.HealthChanged != nil {
		m.HealthChanged(pods)
	}
}
