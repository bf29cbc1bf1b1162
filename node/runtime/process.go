package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is one that this package started, or that an earlier agent did. It is held by a descriptor, so that neither a
// signal nor the news of its end can be about another process with the same number.
type process struct {
	pid     int
	program string
	config  string
	done    chan struct{} // closed when the process has ended
	began   time.Time

	handle *os.File
	child  *exec.Cmd // nil if another process is its parent
}

// killAfter is how long a process may take to end when it is asked to.
const killAfter = 10 * time.Second

// spawn starts containerd. It gets a session of its own, and its output goes straight to a file: nothing of it is lost, and
// nothing ends, when the agent does.
func (r *Runtime) spawn() (*process, error) {
	log, err := os.OpenFile(r.layout.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	program := filepath.Join(r.config.BinDir, "containerd")
	cmd := exec.Command(program, "--config", r.file) //nolint:gosec,noctx // G204: the program is a setting; it shall outlive every context
	cmd.Dir = "/"
	cmd.Env = environment(os.Environ(), r.config.BinDir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := startIn(r.config.NetNS, cmd); err != nil {
		return nil, fmt.Errorf("start containerd: %w", err)
	}
	p, err := hold(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	p.program, p.config, p.child = program, r.file, cmd
	go p.watch()
	return p, nil
}

// environment is what containerd gets: the shims are looked for in its PATH, and nobody's readiness is its business.
func environment(all []string, bin string) []string {
	out := slices.DeleteFunc(slices.Clone(all), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains([]string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "PATH"}, name)
	})
	return append(out, "PATH="+bin+":"+os.Getenv("PATH"))
}

// startIn starts a command in a network namespace. A new process gets the namespace of the thread that makes it.
func startIn(namespace string, cmd *exec.Cmd) error {
	if namespace == "" {
		return cmd.Start()
	}
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the network namespace: %w", err)
	}
	defer home.Close()
	if err := enter(namespace); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = cmd.Start()
	// A thread that does not get home stays locked to this goroutine, so that nothing else runs on it.
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("leave the network namespace %s: %w", namespace, back))
	}
	runtime.UnlockOSThread()
	return err
}

// enter moves this thread into a network namespace.
func enter(namespace string) error {
	target, err := os.Open(namespace)
	if err != nil {
		return fmt.Errorf("open the network namespace: %w", err)
	}
	defer target.Close()
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace %s: %w", namespace, err)
	}
	return nil
}

// hold takes a descriptor of a process.
func hold(pid int) (*process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("hold process %d: %w", pid, err)
	}
	return &process{pid: pid, done: make(chan struct{}), began: time.Now(), handle: os.NewFile(uintptr(fd), "process")}, nil
}

// watch closes done when the process has ended. It returns without that when the process is released.
func (p *process) watch() {
	conn, err := p.handle.SyscallConn()
	if err != nil {
		return
	}
	ended := func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n > 0
	}
	if conn.Read(ended) != nil {
		return
	}
	if p.child != nil {
		_ = p.child.Wait()
	}
	close(p.done)
}

// release ends the watching; the process goes on.
func (p *process) release() { _ = p.handle.Close() }

// signal reaches this process or none.
func (p *process) signal(s syscall.Signal) error {
	conn, err := p.handle.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := conn.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), s, nil, 0) }); err != nil {
		return err
	}
	if sent == unix.ESRCH {
		return nil
	}
	return sent
}

// terminate asks the process to end, and makes it end if it does not.
func (p *process) terminate(ctx context.Context) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end process %d: %w", p.pid, err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	case <-time.After(killAfter):
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill process %d: %w", p.pid, err)
	}
	<-p.done
	return nil
}

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
		other.release()
	}
	if p.program, err = os.Readlink(fmt.Sprintf("/proc/%d/exe", p.pid)); err != nil {
		p.release()
		return nil, nil //nolint:nilerr,nilnil // it has just ended
	}
	p.config = arguments(p.pid)[2]
	go p.watch()
	return p, nil
}

// processes are those of this user whose arguments match. The oldest comes first.
func processes(match func(args []string) bool) (out []*process, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !match(arguments(pid)) {
			continue
		}
		p, err := hold(pid)
		if err != nil {
			continue // it has ended
		}
		// Once it is held, look again: the number may have gone to another one in between.
		info, err := os.Stat("/proc/" + e.Name())
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) || !match(arguments(pid)) {
			p.release()
			continue
		}
		out = append(out, p)
	}
	return out, nil
}

// arguments are the words that a process was started with; none if there is no such process.
func arguments(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimSuffix(data, []byte{0})), "\x00")
}
