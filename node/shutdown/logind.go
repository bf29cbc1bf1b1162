package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/internal/wait"
)

// The names of systemd-logind, which announces that the machine shuts down.
const (
	login          = "org.freedesktop.login1"
	loginPath      = "/org/freedesktop/login1"
	loginInterface = "org.freedesktop.login1.Manager"
	// loginFolder has drop-in files for logind.conf.
	loginFolder = "/etc/systemd/logind.conf.d"
	loginFile   = "99-proa.conf"
)

// reconnectPause is the pause before the bus is connected again.
const reconnectPause = time.Second

// ErrNoBus says that the machine has no system bus, so that nothing announces its shutdown.
var ErrNoBus = errors.New("the system has no bus")

// Run delays the shutdown of the machine until the Pods have terminated. It runs until ctx ends, or returns ErrNoBus at
// once on a machine without systemd.
func (m *Manager) Run(ctx context.Context) error {
	if len(m.Periods) == 0 {
		return nil
	}
	for ctx.Err() == nil {
		err := m.watchLogind(ctx)
		if errors.Is(err, ErrNoBus) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			m.Log.Error("the shutdown of the machine cannot be watched", "err", err)
		}
		_ = wait.Sleep(ctx, reconnectPause)
	}
	return nil
}

// watchLogind uses one connection until it breaks.
func (m *Manager) watchLogind(ctx context.Context) error {
	bus, err := m.Bus(ctx)
	if err != nil {
		return err
	}
	defer bus.Close()
	if err := m.raiseDelay(ctx, bus); err != nil {
		return err
	}
	signals, err := bus.Signals("type='signal',interface='" + loginInterface + "',member='PrepareForShutdown',path='" + loginPath + "'")
	if err != nil {
		return err
	}
	lock, err := inhibit(bus)
	if err != nil {
		return err
	}
	defer func() { lock.Close() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case s, open := <-signals:
			if !open {
				return fmt.Errorf("the bus has gone: %w", bus.Err())
			}
			if s.Member != "PrepareForShutdown" {
				continue
			}
			down, err := s.body().boolean()
			if err != nil {
				m.Log.Error("a signal of the bus makes no sense", "err", err)
				continue
			}
			if down {
				m.RecordNodeEvent(corev1.EventTypeNormal, "NodeShutdown", "Shutdown manager detected shutdown event")
				m.Begin(ctx)
				lock.Close() // now the machine may shut down
				continue
			}
			m.RecordNodeEvent(corev1.EventTypeNormal, "NodeShutdown", "Shutdown manager detected shutdown cancellation")
			m.setDown(false)
			lock.Close()
			if lock, err = inhibit(bus); err != nil {
				return err
			}
		}
	}
}

// inhibit takes the inhibitor lock that delays a shutdown as long as the file is open.
func inhibit(bus *Bus) (*os.File, error) {
	r, err := bus.Call(login, loginPath, loginInterface, "Inhibit", stringValue("shutdown"), stringValue("kubelet"),
		stringValue("Kubelet needs time to handle node shutdown"), stringValue("delay"))
	if err != nil {
		return nil, fmt.Errorf("failed creating systemd inhibitor: %w", err)
	}
	if len(r.files) == 0 {
		return nil, errors.New("failed creating systemd inhibitor: the answer has no file")
	}
	return r.files[0], nil
}

// raiseDelay makes systemd-logind wait as long as the Pods may take.
func (m *Manager) raiseDelay(ctx context.Context, bus *Bus) error {
	now, err := inhibitDelay(bus)
	if err != nil || now >= m.totalGrace() {
		return err
	}
	if err := overrideDelay(loginFolder, m.totalGrace()); err != nil {
		return fmt.Errorf("unable to override inhibit delay by shutdown manager: %w", err)
	}
	const hangUp = 1
	if _, err := bus.Call("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", "KillUnit",
		stringValue("systemd-logind.service"), stringValue("all"), int32Value(hangUp)); err != nil {
		return fmt.Errorf("unable to reload logind conf: %w", err)
	}
	// logind reloads its settings a moment later.
	for pause := 100 * time.Millisecond; pause < 3*time.Second; pause *= 2 {
		if err := wait.Sleep(ctx, pause); err != nil {
			return err
		}
		if now, err = inhibitDelay(bus); err != nil || now >= m.totalGrace() {
			return err
		}
	}
	return fmt.Errorf("node shutdown manager was timed out waiting for logind InhibitDelayMaxSec to update to %v (ShutdownGracePeriod), current value is %v", m.totalGrace(), now)
}

// inhibitDelay returns how long logind waits for inhibitor locks.
func inhibitDelay(bus *Bus) (time.Duration, error) {
	r, err := bus.Call(login, loginPath, "org.freedesktop.DBus.Properties", "Get", stringValue(loginInterface),
		stringValue("InhibitDelayMaxUSec"))
	if err != nil {
		return 0, fmt.Errorf("failed reading InhibitDelayMaxUSec property from logind: %w", err)
	}
	n, err := r.body().variantUint64()
	if err != nil {
		return 0, fmt.Errorf("InhibitDelayMaxUSec from logind is not a uint64 as expected: %w", err)
	}
	return time.Duration(n) * time.Microsecond, nil
}

// overrideDelay sets how long logind waits for inhibitor locks.
func overrideDelay(folder string, d time.Duration) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // G301: a folder of the system without secrets
		return err
	}
	return os.WriteFile(filepath.Join(folder, loginFile), fmt.Appendf(nil, "# Written by proa, so that Pods can end before the machine does\n[Login]\nInhibitDelayMaxSec=%.0f\n", d.Seconds()), 0o644) //nolint:gosec // G306: logind reads it, and it has no secrets
}

// RemoveOverride removes what Run has set on the machine, for the nodes of all clusters on it.
func RemoveOverride() error {
	err := os.Remove(filepath.Join(loginFolder, loginFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
