// Package apart is for processes that run apart from this one and outlive it: agents of nodes that have a network namespace for
// themselves. It starts them, knows them again when another process has started them, and ends them.
package apart

import (
	"bytes"
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

// Process is one that is held by a descriptor, so that neither a signal nor the news of its end can be about another process
// with the same number.
type Process struct {
	Pid int
	// Done is closed when the process has ended.
	Done   chan struct{}
	handle *os.File
}

// hold takes a descriptor of a process; nil if there is none any more. reap, if it is not nil, is called when it has ended.
func hold(pid int, reap func()) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, nil //nolint:nilnil // there is no such process, and nothing is wrong
	}
	if err != nil {
		return nil, fmt.Errorf("hold process %d: %w", pid, err)
	}
	p := &Process{Pid: pid, Done: make(chan struct{}), handle: os.NewFile(uintptr(fd), "process")}
	go p.watch(reap)
	return p, nil
}

// Hold takes a descriptor of the process with a number; nil if there is none. The number may have gone to another process by
// now: ask again who it is that has it.
func Hold(pid int) (*Process, error) { return hold(pid, nil) }

// Start starts a program in the network namespace of a file. It gets a session of its own and writes to the end of a file, so
// that nothing of it is lost, and nothing ends, when this process does.
func Start(namespace, logFile, program string, args ...string) (*Process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", program, err)
	}
	defer log.Close()
	cmd := exec.Command(program, args...) //nolint:gosec,noctx // G204: the caller says what; it shall outlive every context
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := netns.Do(namespace, cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	p, err := hold(cmd.Process.Pid, func() { _ = cmd.Wait() })
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return p, err
}

// watch closes Done when the process has ended. It returns without that when the process is released.
func (p *Process) watch(reap func()) {
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
	if reap != nil {
		reap()
	}
	close(p.Done)
}

// Release ends the watching; the process goes on.
func (p *Process) Release() { _ = p.handle.Close() }

// signal reaches this process or none.
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

// Terminate asks the process to end, and makes it end if it does not.
func (p *Process) Terminate(patience time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end process %d: %w", p.Pid, err)
	}
	select {
	case <-p.Done:
		return nil
	case <-time.After(patience):
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill process %d: %w", p.Pid, err)
	}
	<-p.Done
	return nil
}

// Runs tells whether the process runs a program, the one that is there now, with these words.
func (p *Process) Runs(words []string) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.Pid))
	if err != nil || !slices.Equal(strings.Split(string(bytes.TrimSuffix(data, []byte{0})), "\x00"), words) {
		return false
	}
	there, err := os.Stat(fmt.Sprintf("/proc/%d/exe", p.Pid))
	if err != nil {
		return false
	}
	here, err := os.Stat(words[0])
	return err == nil && os.SameFile(here, there)
}
