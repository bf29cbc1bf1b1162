// Package subprocess manages processes that outlive this one: the container runtime, and agents of nodes in network
// namespaces. It starts them, attaches to those that another process has started, and ends them.
package subprocess

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"proa.dev/node/netns"
)

// Process is a process that is held by a pidfd, so that neither a signal nor the report of its end can concern another
// process with the same number.
type Process struct {
	Pid int
	// Done is closed when the process has ended.
	Done chan struct{}

	handle *os.File
	child  *exec.Cmd // nil if another process is its parent
}

// hold opens a pidfd of a process; nil if the process does not exist.
func hold(pid int, child *exec.Cmd) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil // the process has ended, which is no error
	}
	if err != nil {
		return nil, fmt.Errorf("hold process %d: %w", pid, err)
	}
	p := &Process{Pid: pid, Done: make(chan struct{}), handle: os.NewFile(uintptr(fd), "process"), child: child}
	go p.watch()
	return p, nil
}

// Hold opens a pidfd of the process with a number; nil if it does not exist. The number may have been reused: check the
// process again afterwards.
func Hold(pid int) (*Process, error) { return hold(pid, nil) }

// Command is a program to start.
type Command struct {
	Program string
	Args    []string
	// Env is its environment; nil for that of this process.
	Env []string
	// Log is the file to which its output is appended.
	Log string
	// Namespace is the file of its network namespace; empty for that of this process.
	Namespace string
}

// Start starts a program. It gets a session of its own, and its output goes straight to a file, so that it is not
// affected when this process ends.
func Start(c Command) (*Process, error) {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", c.Program, err)
	}
	defer log.Close()
	cmd := exec.Command(c.Program, c.Args...) //nolint:gosec // G204: the caller says what; it shall outlive every context
	cmd.Dir, cmd.Env = "/", c.Env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c.Namespace == "" {
		err = cmd.Start()
	} else {
		err = netns.Do(c.Namespace, cmd.Start)
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Program, err)
	}
	p, err := hold(cmd.Process.Pid, cmd)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return p, err
}

// Own reports whether this process has started it.
func (p *Process) Own() bool { return p.child != nil }

// watch closes Done when the process has ended. It returns without that when the process is released.
func (p *Process) watch() {
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
	close(p.Done)
}

// Release ends the watching; the process keeps running.
func (p *Process) Release() { _ = p.handle.Close() }

// Kill kills the process.
func (p *Process) Kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill process %d: %w", p.Pid, err)
	}
	return nil
}

// signal sends a signal to this process, never to another one.
func (p *Process) signal(s syscall.Signal) error {
	conn, err := p.handle.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := conn.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), s, nil, 0) }); err != nil {
		return err
	}
	if errors.Is(sent, unix.ESRCH) {
		return nil
	}
	return sent
}

// Terminate asks the process to end, and kills it if it has not ended when patience or the context is over.
func (p *Process) Terminate(ctx context.Context, patience time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end process %d: %w", p.Pid, err)
	}
	select {
	case <-p.Done:
		return nil
	case <-ctx.Done():
	case <-time.After(patience):
	}
	if err := p.Kill(); err != nil {
		return err
	}
	<-p.Done
	return nil
}

// Runs reports whether the process runs the present file of a program, with these arguments.
func (p *Process) Runs(words []string) bool {
	if !slices.Equal(Arguments(p.Pid), words) {
		return false
	}
	there, err := os.Stat(fmt.Sprintf("/proc/%d/exe", p.Pid))
	if err != nil {
		return false
	}
	here, err := os.Stat(words[0])
	return err == nil && os.SameFile(here, there)
}

// Arguments returns the arguments of a process; none if it does not exist.
func Arguments(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(data) == 0 {
		return nil
	}
	return strings.Split(string(bytes.TrimSuffix(data, []byte{0})), "\x00")
}
