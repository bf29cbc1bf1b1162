package cgroup

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Units manages slices of systemd.
type Units interface {
	// Slice creates a slice, if it does not exist, and sets properties of it.
	Slice(unit string, properties []string) error
	// Stop stops a slice and removes its properties.
	Stop(unit string) error
}

// FindUnits returns access to systemd, nil on a machine without it. It calls systemctl: the D-Bus library calls methods
// by name, which would make the linker keep every method of the binary.
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

// maxSystemctl is the timeout of systemctl.
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
	var output strings.Builder
	cmd := exec.Command(string(s), args...) //nolint:gosec // G204: units have names of our own
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run systemctl: %w", err)
	}
	late := time.AfterFunc(maxSystemctl, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", args[0], err, strings.TrimSpace(output.String()))
	}
	return nil
}
