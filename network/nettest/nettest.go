// Package nettest lets tests of the network use the kernel without touching the machine: the test process lives in a
// network namespace of its own, and makes others for Pods, nodes and the world outside. Everything goes when the process ends.
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
	// The signal comes when the thread ends that started the process.
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

// Need skips a test that needs a network namespace where there can be none.
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

// Home is the namespace of the test process.
func Home(t testing.TB) *NS {
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &NS{t: t, file: f}
}

// New makes a namespace. It goes with the test, or when Drop is called. At the end of the test its rules must be readable.
func New(t testing.TB) *NS {
	t.Helper()
	n := &NS{t: t}
	err := aside(func() error {
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

// Path names the namespace for other processes.
func (n *NS) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// FD is the open file.
func (n *NS) FD() int { return int(n.file.Fd()) }

// Drop lets the namespace go, unless somebody else holds it.
func (n *NS) Drop() {
	n.dropped = true
	_ = n.file.Close()
}

// Do runs f in the namespace. Sockets opened by it stay there.
func (n *NS) Do(f func()) {
	n.t.Helper()
	err := aside(func() error {
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

// aside runs f on a thread that ends with it. The first thread stands for the process in /proc and cannot end, so it is not
// that one.
func aside(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			err := aside(f)
			runtime.UnlockOSThread()
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// Wire connects two namespaces with a cable. Each end gets a name, addresses, and a way to everything else if via is set.
func Wire(t testing.TB, a, b End) {
	t.Helper()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: a.Name, TxQLen: -1}, PeerName: b.Name, PeerNamespace: netlink.NsFd(b.NS.FD())}
	a.NS.Do(func() {
		if err := netlink.LinkAdd(link); err != nil {
			t.Errorf("wire %s: %v", a.Name, err)
		}
	})
	a.furnish(t)
	b.furnish(t)
}

// End is one end of a cable.
type End struct {
	NS    *NS
	Name  string
	Addrs []string
	Via   []string
}

func (e End) furnish(t testing.TB) {
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
