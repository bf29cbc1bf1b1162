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

	"proa.dev/node/clock"
)

// What drivers say of the health of their devices.
const (
	// validFor is how long a report counts where the driver does not say.
	validFor = 30 * time.Second
	// longest is how long a report may count at most.
	longest = 24 * time.Hour
	// askAgain is how long to wait for a driver whose reports have ended.
	askAgain = 5 * time.Second
	// maxReports is how many devices of a driver may have a report.
	maxReports = 1 << 16
)

// report is what a driver has said of a device, until it is too old.
type report struct {
	health  corev1.ResourceHealthStatus
	message string
	until   time.Time
}

// place names a device of a driver.
type place struct{ pool, device string }

// healthServices are the versions of the protocol, the newest first. The messages are the same in all.
func healthServices() []string {
	return []string{reports.DRAResourceHealthService, "v1alpha1.DRAResourceHealth"}
}

// listen follows what a driver says of its devices until ctx ends. A driver need not say anything.
func (m *Manager) listen(ctx context.Context, name string, d *driver) {
	for ctx.Err() == nil {
		err := m.hear(ctx, name, d)
		m.silent(name)
		if status.Code(err) == codes.Unimplemented || !clock.Sleep(ctx, askAgain) {
			return
		}
	}
}

func (m *Manager) hear(ctx context.Context, name string, d *driver) error {
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
		if err := m.take(name, r.Devices, time.Now()); err != nil {
			return err
		}
	}
}

// take notes what a driver says, and tells the Pods whose devices have changed.
func (m *Manager) take(name string, devices []*reports.DeviceHealth, now time.Time) error {
	m.mu.Lock()
	if m.reports[name] == nil {
		m.reports[name] = map[place]report{}
	}
	all := m.reports[name]
	var changed []place
	for _, d := range devices {
		at := place{d.GetDevice().GetPoolName(), d.GetDevice().GetDeviceName()}
		r := report{health: corev1.ResourceHealthStatusUnknown, message: short(d.GetMessage()), until: time.Unix(d.GetLastUpdatedTime(), 0).Add(lasts(d))}
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
	pods := m.having(name, changed)
	m.expire(name, now)
	m.mu.Unlock()
	m.tell(pods)
	if many > maxReports {
		return fmt.Errorf("reports of %d devices are too many", many)
	}
	return nil
}

// lasts is how long a report counts.
func lasts(d *reports.DeviceHealth) time.Duration {
	if n := d.GetHealthCheckTimeoutSeconds(); n > 0 {
		return time.Duration(min(n, int64(longest/time.Second))) * time.Second
	}
	return validFor
}

// short keeps a message within what a status may hold.
func short(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= corev1.ResourceHealthMessageMaxLength {
		return text
	}
	return strings.ToValidUTF8(text[:corev1.ResourceHealthMessageMaxLength-3], "") + "..."
}

// reported is what is known of a device now. The caller holds the lock.
func (m *Manager) reported(name string, at place, now time.Time) report {
	if r, found := m.reports[name][at]; found && !now.After(r.until) {
		return r
	}
	return report{health: corev1.ResourceHealthStatusUnknown}
}

// having are the Pods that have some devices of a driver, or with nil any. The caller holds the lock.
func (m *Manager) having(name string, some []place) (out []types.UID) {
	for _, c := range m.claims {
		d := c.Drivers[name]
		if d == nil || !slices.ContainsFunc(d.Devices, func(x Device) bool { return some == nil || slices.Contains(some, place{x.Pool, x.Name}) }) {
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

// expire looks again when the next report of a driver gets too old. The caller holds the lock.
func (m *Manager) expire(name string, now time.Time) {
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
		pods := m.having(name, nil)
		m.expire(name, time.Now())
		m.mu.Unlock()
		m.tell(pods)
	})
}

// silent forgets what a driver has said.
func (m *Manager) silent(name string) {
	m.mu.Lock()
	had := len(m.reports[name]) > 0
	delete(m.reports, name)
	m.expire(name, time.Now())
	pods := m.having(name, nil)
	m.mu.Unlock()
	if had {
		m.tell(pods)
	}
}

func (m *Manager) tell(pods []types.UID) {
	if len(pods) > 0 && m.Health != nil {
		m.Health(pods)
	}
}
