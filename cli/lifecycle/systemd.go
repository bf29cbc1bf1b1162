package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"proa.dev/cli/command"
)

// systemd is the service manager of the machine, and the units that "proa install" has written for it.
type systemd struct {
	root string // of the file system; "/" except in tests
	// call runs systemctl and returns what it prints; nil for the program of the machine.
	call func(ctx context.Context, args ...string) ([]byte, error)
}

// machineSystemd returns systemd of this machine, which may run without it.
func machineSystemd() systemd { return systemd{root: "/"} }

// isRunning tells whether the machine runs systemd.
func (m systemd) isRunning() bool {
	return command.FileExists(filepath.Join(m.root, "run/systemd/system"))
}

// systemctl runs systemctl; it is an error if the machine does not run systemd.
func (m systemd) systemctl(ctx context.Context, args ...string) error {
	if !m.isRunning() {
		return fmt.Errorf("systemd does not run this machine: \"systemctl %s\" was not called. The files are written, and nothing is started", strings.Join(args, " "))
	}
	call := m.call
	if call == nil {
		call = func(ctx context.Context, args ...string) ([]byte, error) {
			return exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
		}
	}
	if text, err := call(ctx, args...); err != nil {
		return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, command.Printable(strings.TrimSpace(string(text))))
	}
	return nil
}

// unitFile returns the path of the unit of a service.
func (m systemd) unitFile(s service) string {
	return filepath.Join(m.root, "etc/systemd/system", s.name+".service")
}

// serviceOfProcess returns the name of the service of "proa install" that a process belongs to; empty if it belongs to none. systemd
// starts such a process again when it ends.
func (m systemd) serviceOfProcess(pid int) string {
	cgroups, err := os.ReadFile(filepath.Join(m.root, "proc", strconv.Itoa(pid), "cgroup"))
	if err != nil || !m.isRunning() {
		return ""
	}
	for line := range strings.Lines(string(cgroups)) {
		for _, s := range services() {
			// Services of users, which may have the same name, are in other slices.
			if strings.Contains(strings.TrimSpace(line)+"/", "/system.slice/"+s.name+".service/") && m.isOwn(s) {
				return s.name
			}
		}
	}
	return ""
}

// isOwn tells whether the unit of a service was written by "proa install".
func (m systemd) isOwn(s service) bool {
	text, err := os.ReadFile(m.unitFile(s))
	if err != nil {
		return false
	}
	_, isOwn := dataFolderOf(text)
	return isOwn
}

// serviceOfCluster returns the name of the service of "proa install" that a cluster is; empty if it is none. pid is its server; zero if
// none runs, as between two attempts of systemd to start one.
func (m systemd) serviceOfCluster(dir string, pid int) string {
	return cmp.Or(m.serviceOfProcess(pid), m.serviceOfFolder(dir))
}

// serviceOfFolder returns the name of the installed service whose data folder this is; empty if it is that of none.
func (m systemd) serviceOfFolder(dir string) string {
	if !m.isRunning() {
		return ""
	}
	for _, s := range services() {
		if text, err := os.ReadFile(m.unitFile(s)); err == nil {
			if of, isOwn := dataFolderOf(text); isOwn && of == dir {
				return s.name
			}
		}
	}
	return ""
}

// dataFolderOf returns the data folder of a unit that "proa install" has written, and false for other units.
func dataFolderOf(unit []byte) (dir string, isOwn bool) {
	line, _, _ := strings.Cut(string(unit), "\n")
	return strings.CutPrefix(line, madeBy)
}
