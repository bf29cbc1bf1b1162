// Package lab creates network namespaces for programs under test: networks outside a cluster, other machines, or Pods without a
// container. It uses the programs ip and nsenter, needs root, and changes nothing of the machine but links whose other end is in a
// namespace that it created, which are removed with it.
package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Net is a network namespace. An idle process keeps it alive, so that it needs no name below /run/netns. The zero value is the
// namespace of this process.
type Net struct{ holder *exec.Cmd }

// Missing returns why namespaces cannot be created, or "" if they can.
func Missing() string {
	if os.Geteuid() != 0 {
		return "network namespaces need root"
	}
	for _, name := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed (packages iproute2 and util-linux)"
		}
	}
	return ""
}

// New creates a namespace whose loopback interface is up.
func New() (*Net, error) {
	if why := Missing(); why != "" {
		return nil, errors.New(why)
	}
	n := &Net{holder: exec.Command("sleep", "infinity")}
	n.holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setpgid: true}
	if err := n.holder.Start(); err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	if err := n.IP("link set lo up"); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Close removes the namespace with its links, unless other processes still run in it.
func (n *Net) Close() error {
	if n == nil || n.holder == nil {
		return nil
	}
	err := n.holder.Process.Kill()
	_ = n.holder.Wait()
	return err
}

// Path returns the path of the namespace.
func (n *Net) Path() string {
	if n.holder == nil {
		return "/proc/self/ns/net"
	}
	return "/proc/" + strconv.Itoa(n.holder.Process.Pid) + "/ns/net"
}

// Command returns a command that runs a program in the namespace.
func (n *Net) Command(ctx context.Context, bin string, args ...string) *exec.Cmd {
	if n.holder == nil {
		return exec.CommandContext(ctx, bin, args...)
	}
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + n.Path(), "--", bin}, args...)...)
}

// IP runs the program ip in the namespace, with the words of a line.
func (n *Net) IP(line string) error {
	return command(n.Command(context.Background(), "ip", strings.Fields(line)...))
}

// Set writes settings of the kernel's network, as "ipv4/ip_forward=1".
func (n *Net) Set(settings ...string) error {
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		if err := n.Do(func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644) }); err != nil {
			return err
		}
	}
	return nil
}

func command(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// End is one end of a link: in a namespace, under a name, with addresses that have a prefix length.
type End struct {
	Net   *Net
	Name  string
	Addrs []string
}

// Link connects two namespaces.
func Link(a, b End) error {
	if a.Net.holder == nil {
		a, b = b, a // the link is created in a namespace of this package, so that it is removed with it
	}
	if a.Net.holder == nil {
		return errors.New("a link needs one end in a namespace of its own")
	}
	line := "link add " + a.Name + " type veth peer name " + b.Name
	if b.Net.holder != nil {
		line += " netns " + strconv.Itoa(b.Net.holder.Process.Pid)
	} else {
		line += " netns " + strconv.Itoa(os.Getpid())
	}
	if err := a.Net.IP(line); err != nil {
		return err
	}
	for _, e := range []End{a, b} {
		for _, addr := range e.Addrs {
			if err := e.Net.IP("addr add " + addr + " dev " + e.Name); err != nil {
				return err
			}
		}
		if err := e.Net.IP("link set " + e.Name + " up"); err != nil {
			return err
		}
	}
	return nil
}

// Do runs f with its thread in the namespace. Sockets that it opens stay there; goroutines that it starts do not.
func (n *Net) Do(f func() error) error {
	if n.holder == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		// The thread stays locked and ends with this goroutine, so that no other goroutine runs in the namespace.
		runtime.LockOSThread()
		file, err := os.Open(n.Path())
		if err != nil {
			done <- err
			return
		}
		defer file.Close()
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter a network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// Dial connects from the namespace.
func (n *Net) Dial(ctx context.Context, dialer *net.Dialer, network, addr string) (c net.Conn, err error) {
	err = n.Do(func() error {
		c, err = dialer.DialContext(ctx, network, addr)
		return err
	})
	return c, err
}
