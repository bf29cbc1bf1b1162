package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Units asks systemd for slices.
type Units interface {
	// Slice makes a slice, if it is not there, and sets properties of it.
	Slice(unit string, properties []string) error
	// Stop ends a slice and forgets its properties.
	Stop(unit string) error
}

// FindUnits returns a way to systemd, or nil where systemd does not run. It calls systemctl: the library for its bus calls
// methods by name, which would make the linker keep every method of the binary.
func FindUnits() Units {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return nil
	}
	path, err := exec.LookPath("systemctl")
	if err != nil {
		return nil
	}
	return systemctl(path)
}

// maxSystemctl bounds how long systemd may take.
const maxSystemctl = 20 * time.Second

type systemctl string

func (s systemctl) Slice(unit string, properties []string) error {
	if err := s.run(append([]string{"set-property", "--runtime", "--", unit}, properties...)...); err != nil {
		return err
	}
	return s.run("start", "--", unit)
}

func (s systemctl) Stop(unit string) error {
	if err := s.run("stop", "--", unit); err != nil {
		return err
	}
	return s.run("revert", "--", unit)
}

func (s systemctl) run(args ...string) error {
	var said strings.Builder
	cmd := exec.Command(string(s), args...) //nolint:gosec // G204: units have names of our own
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run systemctl: %w", err)
	}
	late := time.AfterFunc(maxSystemctl, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return nil
}
