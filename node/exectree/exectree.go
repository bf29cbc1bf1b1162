// Package exectree kills a command that runs in a container together with all its child processes. A runtime that ends
// a command kills only its first process; the processes it has forked would keep running in the container for ever.
package exectree

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Command is a command that a runtime runs in a container.
type Command struct {
	// Init is the process id of the container's first process, in the PID namespace of this process.
	Init int
	Args []string
	// Age is how long ago the runtime was asked to run it.
	Age time.Duration
}

// ErrNotFound says that the command does not run, or cannot be distinguished from others.
var ErrNotFound = errors.New("the command is not among the processes of the container")

// process is what /proc shows of a process.
type process struct {
	pid, parent, session int
	age                  time.Duration
	args                 []string
}

// Kill kills the command with all its child processes. It repeats until no new ones have been forked meanwhile.
func Kill(c Command) error {
	first, root := true, 0
	for range 10 {
		all, err := inContainer(c.Init)
		if err != nil {
			return err
		}
		if first {
			if root = findRoot(all, c); root == 0 {
				return ErrNotFound
			}
			first = false
		}
		doomed := descendants(all, root)
		if len(doomed) == 0 {
			return nil
		}
		for _, pid := range doomed {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		if len(doomed) == 1 && doomed[0] == root {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// findRoot returns the first process of the command, or 0. The runtime starts it from outside the container, with a session
// of its own. Of several such processes it is the oldest that has the arguments of the command; a busy runtime may have
// started it long after it was asked. If there is none, it is the only one that was started about when the runtime was
// asked.
func findRoot(all []process, c Command) int {
	inside := map[int]bool{}
	for _, p := range all {
		inside[p.pid] = true
	}
	var fits, equal []process
	for _, p := range all {
		if p.pid == c.Init || inside[p.parent] || p.session != p.pid || p.age > c.Age+tick {
			continue
		}
		if p.age >= c.Age/2 {
			fits = append(fits, p)
		}
		if slices.Equal(p.args, c.Args) {
			equal = append(equal, p)
		}
	}
	switch {
	case len(equal) > 0: // equal ones that started later belong to other calls
		return slices.MaxFunc(equal, func(a, b process) int { return int(a.age - b.age) }).pid
	case len(fits) == 1:
		return fits[0].pid
	}
	return 0
}

// descendants returns the first process of a command, its descendants, and the processes of its session: processes whose
// parent has ended are reparented, but stay in the session.
func descendants(all []process, root int) (out []int) {
	doomed := map[int]bool{root: true}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if !doomed[p.pid] && (doomed[p.parent] || p.session == root) {
				doomed[p.pid], grown = true, true
			}
		}
	}
	for _, p := range all {
		if doomed[p.pid] {
			out = append(out, p.pid)
		}
	}
	return out
}

// tick is the kernel's unit for the start time of processes.
const tick = 10 * time.Millisecond

// inContainer returns the processes in the cgroup of a container's first one, without zombies.
func inContainer(first int) (out []process, err error) {
	group, err := os.ReadFile(procFile(first, "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("find the cgroup of the container: %w", err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return nil, err
	}
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		pid, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		if theirs, err := os.ReadFile(procFile(pid, "cgroup")); err != nil || !bytes.Equal(theirs, group) {
			continue
		}
		if p, ok := read(pid, time.Duration(now.Nano())); ok {
			out = append(out, p)
		}
	}
	return out, nil
}

func procFile(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// read reads a process from /proc; false if it has ended.
func read(pid int, now time.Duration) (process, bool) {
	text, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return process{}, false
	}
	p, state, began, ok := parse(string(text))
	if !ok || state == "Z" || state == "X" {
		return process{}, false
	}
	p.pid, p.age = pid, now-began
	if words, err := os.ReadFile(procFile(pid, "cmdline")); err == nil && len(words) > 0 {
		p.args = strings.Split(string(bytes.TrimSuffix(words, []byte{0})), "\x00")
	}
	return p, true
}

// parse parses a line of /proc/PID/stat. The second field is a name in parentheses that may contain anything.
func parse(text string) (p process, state string, began time.Duration, ok bool) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return p, "", 0, false
	}
	fields := strings.Fields(text[end+1:]) // from the third field on
	if len(fields) < 20 {
		return p, "", 0, false
	}
	parent, err1 := strconv.Atoi(fields[1])
	session, err2 := strconv.Atoi(fields[3])
	ticks, err3 := strconv.ParseInt(fields[19], 10, 64)
	if errors.Join(err1, err2, err3) != nil {
		return p, "", 0, false
	}
	p.parent, p.session = parent, session
	return p, fields[0], time.Duration(ticks) * tick, true
}
