package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"proa.dev/node/subprocess"
)

// process is a containerd or a shim, started by this agent or by an earlier one.
type process struct {
	*subprocess.Process
	program, config string
	began           time.Time
}

// killAfter is how long a process may take to end before it is killed.
const killAfter = 10 * time.Second

// spawn starts containerd.
func (r *Runtime) spawn() (*process, error) {
	program := filepath.Join(r.config.BinDir, "containerd")
	p, err := subprocess.Start(subprocess.Command{
		Program: program, Args: []string{"--config", r.file}, Env: environment(os.Environ(), r.config.BinDir), Log: r.layout.log,
		Namespace: r.config.NetNS,
	})
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, errors.New("containerd ended at once")
	}
	if r.config.Place != nil {
		if err := r.config.Place(p.Pid); err != nil {
			r.log.Warn("the memory of containerd counts for the agent that started it", "err", err)
		}
	}
	return &process{Process: p, program: program, config: r.file, began: time.Now()}, nil
}

// environment returns the environment of containerd: shims are looked up in its PATH, and it must not report readiness
// to the agent's service manager.
func environment(all []string, bin string) []string {
	out := slices.DeleteFunc(slices.Clone(all), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains([]string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "PATH"}, name)
	})
	return append(out, "PATH="+bin+":"+os.Getenv("PATH"))
}

// terminate asks the process to end, and kills it if it does not.
func (p *process) terminate(ctx context.Context) error { return p.Terminate(ctx, killAfter) }

// findContainerd finds the containerd that runs with a configuration of this folder, if there is one.
func findContainerd(l layout) (*process, error) {
	found, err := processes(func(args []string) bool {
		return len(args) == 3 && filepath.Base(args[0]) == "containerd" && args[1] == "--config" && l.isConfig(args[2])
	})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	p := found[0]
	for _, other := range found[1:] {
		other.Release()
	}
	if p.program, err = os.Readlink(fmt.Sprintf("/proc/%d/exe", p.Pid)); err != nil {
		p.Release()
		return nil, nil //nolint:nilerr // containerd has just ended
	}
	p.config = subprocess.Arguments(p.Pid)[2]
	return p, nil
}

// processes returns the processes of this user whose arguments match, the oldest first.
func processes(match func(args []string) bool) (out []*process, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !match(subprocess.Arguments(pid)) {
			continue
		}
		p, err := subprocess.Hold(pid)
		if err != nil || p == nil {
			continue // it has ended
		}
		// Once the process is held, check again: its number may have been reused in between.
		info, err := os.Stat("/proc/" + e.Name())
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) || !match(subprocess.Arguments(pid)) {
			p.Release()
			continue
		}
		out = append(out, &process{Process: p, began: time.Now()})
	}
	return out, nil
}
