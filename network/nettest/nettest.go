// Package nettest lets tests of the network use the kernel without touching the machine: the test process runs in a
// network namespace of its own, and creates others for Pods, nodes and the outside. All of them disappear with the
// process.
package nettest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const marker = "PROA_NETTEST"

// Main runs the tests of a package in a new network namespace, if that is possible. It returns the exit code.
func Main(m *testing.M) int {
	if os.Getenv(marker) != "" || os.Geteuid() != 0 {
		return m.Run()
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), marker+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	// The signal is sent when the thread ends that started the process.
	runtime.LockOSThread()
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exit.ExitCode(), 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot make a network namespace, tests that need one are skipped:", err)
		return m.Run()
	}
	return 0
}

// Need skips a test if there is no network namespace for it.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv(marker) == "" {
		t.Skip("this test makes network namespaces, which needs root")
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// NS is a network namespace.
type NS struct {
	t       testing.TB
	file    *os.File
	dropped bool
}

// Home returns the namespace of the test process.
func Home(t testing.TB) *NS {
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &NS{t: t, file: f}
}

// New creates a namespace. It is removed at the end of the test, or by Drop. At the end of the test its rules must be
// readable.
func New(t testing.TB) *NS {
	t.Helper()
	n := &NS{t: t}
	err := onThread(func() error {
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.file, err = os.Open("/proc/thread-self/ns/net")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.Readable(t)
		n.Drop()
	})
	return n
}

// Path returns a path of the namespace for other processes.
func (n *NS) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// FD returns the file descriptor of the namespace.
func (n *NS) FD() int { return int(n.file.Fd()) }

// Drop removes the namespace, unless another process uses it.
func (n *NS) Drop() {
	n.dropped = true
	_ = n.file.Close()
}

// Do runs f in the namespace. Sockets that f opens stay there.
func (n *NS) Do(f func()) {
	n.t.Helper()
	err := onThread(func() error {
		err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// onThread runs f on a thread that is terminated afterwards. It is never the main thread, which represents the process
// in /proc and cannot be terminated.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			err := onThread(f)
			runtime.UnlockOSThread()
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// Wire connects two namespaces with a pair of interfaces. Each end gets a name, addresses, and default routes if Via is
// set.
func Wire(t testing.TB, a, b End) {
	t.Helper()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: a.Name, TxQLen: -1}, PeerName: b.Name, PeerNamespace: netlink.NsFd(b.NS.FD())}
	a.NS.Do(func() {
		if err := netlink.LinkAdd(link); err != nil {
			t.Errorf("wire %s: %v", a.Name, err)
		}
	})
	a.configure(t)
	b.configure(t)
}

// End is one end of a pair of interfaces.
type End struct {
	NS    *NS
	Name  string
	Addrs []string
	Via   []string
}

func (e End) configure(t testing.TB) {
	t.Helper()
	e.NS.Do(func() {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		link, e2 := netlink.LinkByName(e.Name)
		if err = errors.Join(err, e2); err != nil {
			t.Error(err)
			return
		}
		err = netlink.LinkSetUp(link)
		for _, s := range e.Addrs {
			p := netip.MustParsePrefix(s)
			a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
			if p.Addr().Is6() {
				a.Flags = unix.IFA_F_NODAD
			}
			err = errors.Join(err, netlink.AddrAdd(link, a))
		}
		for _, s := range e.Via {
			err = errors.Join(err, netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: netip.MustParseAddr(s).AsSlice()}))
		}
		if err != nil {
			t.Errorf("furnish %s: %v", e.Name, err)
		}
	})
}

// Unplug removes an interface of the test process.
func Unplug(name string) {
	if link, err := netlink.LinkByName(name); err == nil {
		_ = netlink.LinkDel(link)
	}
}
