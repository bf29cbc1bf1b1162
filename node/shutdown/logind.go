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
)

// The part of systemd that knows when the machine goes down.
const (
	login          = "org.freedesktop.login1"
	loginPath      = "/org/freedesktop/login1"
	loginInterface = "org.freedesktop.login1.Manager"
	// loginFolder has what is set beside logind.conf.
	loginFolder = "/etc/systemd/logind.conf.d"
	loginFile   = "99-proa.conf"
)

// reconnect is how long to wait for a bus that has gone.
const reconnect = time.Second

// ErrNoBus says that there is nobody who could tell that the machine goes down.
var ErrNoBus = errors.New("the system has no bus")

// Run holds the machine up when it goes down, until the Pods have ended. It runs until ctx ends, or returns ErrNoBus at once on
// a machine without systemd.
func (m *Manager) Run(ctx context.Context) error {
	if len(m.Periods) == 0 {
		return nil
	}
	for ctx.Err() == nil {
		err := m.follow(ctx)
		if errors.Is(err, ErrNoBus) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			m.Log.Error("the shutdown of the machine cannot be watched", "err", err)
		}
		t := time.NewTimer(reconnect)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
	return nil
}

// follow works with one connection until it breaks.
func (m *Manager) follow(ctx context.Context) error {
	bus, err := m.Bus(ctx)
	if err != nil {
		return err
	}
	defer bus.Close()
	if err := m.allow(ctx, bus); err != nil {
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
				m.TellNode(corev1.EventTypeNormal, "NodeShutdown", "Shutdown manager detected shutdown event")
				m.Begin(ctx)
				lock.Close() // now the machine may go down
				continue
			}
			m.TellNode(corev1.EventTypeNormal, "NodeShutdown", "Shutdown manager detected shutdown cancellation")
			m.set(false)
			lock.Close()
			if lock, err = inhibit(bus); err != nil {
				return err
			}
		}
	}
}

// inhibit takes the lock that delays a shutdown: as long as the file is open.
func inhibit(bus *Bus) (*os.File, error) {
	r, err := bus.Call(login, loginPath, loginInterface, "Inhibit", text("shutdown"), text("kubelet"), text("Kubelet needs time to handle node shutdown"), text("delay"))
	if err != nil {
		return nil, fmt.Errorf("failed creating systemd inhibitor: %w", err)
	}
	if len(r.files) == 0 {
		return nil, errors.New("failed creating systemd inhibitor: the answer has no file")
	}
	return r.files[0], nil
}

// allow makes systemd wait as long as the Pods may take.
func (m *Manager) allow(ctx context.Context, bus *Bus) error {
	now, err := delay(bus)
	if err != nil || now >= m.whole() {
		return err
	}
	if err := override(loginFolder, m.whole()); err != nil {
		return fmt.Errorf("unable to override inhibit delay by shutdown manager: %w", err)
	}
	const hangUp = 1
	if _, err := bus.Call("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", "KillUnit",
		text("systemd-logind.service"), text("all"), int32Value(hangUp)); err != nil {
		return fmt.Errorf("unable to reload logind conf: %w", err)
	}
	// It reads its settings a moment later.
	for wait := 100 * time.Millisecond; wait < 3*time.Second; wait *= 2 {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
		if now, err = delay(bus); err != nil || now >= m.whole() {
			return err
		}
	}
	return fmt.Errorf("node shutdown manager was timed out waiting for logind InhibitDelayMaxSec to update to %v (ShutdownGracePeriod), current value is %v", m.whole(), now)
}

// delay is how long systemd waits for those who hold locks.
func delay(bus *Bus) (time.Duration, error) {
	r, err := bus.Call(login, loginPath, "org.freedesktop.DBus.Properties", "Get", text(loginInterface), text("InhibitDelayMaxUSec"))
	if err != nil {
		return 0, fmt.Errorf("failed reading InhibitDelayMaxUSec property from logind: %w", err)
	}
	n, err := r.body().variantUint64()
	if err != nil {
		return 0, fmt.Errorf("InhibitDelayMaxUSec from logind is not a uint64 as expected: %w", err)
	}
	return time.Duration(n) * time.Microsecond, nil
}

// override sets how long systemd waits.
func override(folder string, d time.Duration) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // a folder of the system, with nothing secret
		return err
	}
	return os.WriteFile(filepath.Join(folder, loginFile), fmt.Appendf(nil, "# Written by proa, so that Pods can end before the machine does\n[Login]\nInhibitDelayMaxSec=%.0f\n", d.Seconds()), 0o644) //nolint:gosec // logind reads it, and nothing in it is secret
}

// Undo removes what Run has set on the machine.
func Undo() error {
	err := os.Remove(filepath.Join(loginFolder, loginFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
