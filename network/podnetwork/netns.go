package podnetwork

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"proa.dev/network/cni"
)

// inside runs f on a thread in another network namespace. A thread that cannot return to its own namespace is
// terminated.
func (n *Network) inside(ns *os.File, f func() error) error {
	return onThread(func() (stay bool, err error) {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return true, fmt.Errorf("enter the network namespace: %w", err)
		}
		err = f()
		return unix.Setns(int(n.home.Fd()), unix.CLONE_NEWNET) == nil, err
	})
}

// onThread runs f on a thread of its own, which is terminated afterwards unless f returns stay. It is never the main
// thread, which represents the process in /proc and cannot be terminated.
func onThread(f func() (stay bool, err error)) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			err := onThread(f)
			runtime.UnlockOSThread()
			done <- err
			return
		}
		stay, err := f()
		if stay {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// isNetNS refuses files that are not network namespaces, and the namespace of the node: attaching a Pod there would
// break the network of the node.
func (n *Network) isNetNS(ns *os.File, path string) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(ns.Fd()), &fs); err != nil || fs.Type != unix.NSFS_MAGIC {
		return cni.Errorf(cni.InvalidEnvironment, "%s is not a network namespace", path)
	}
	kind, err := unix.IoctlRetInt(int(ns.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		return cni.Errorf(cni.InvalidEnvironment, "%s is not a network namespace", path)
	}
	var a, b unix.Stat_t
	if unix.Fstat(int(ns.Fd()), &a) == nil && unix.Fstat(int(n.home.Fd()), &b) == nil && a.Ino == b.Ino && a.Dev == b.Dev {
		return cni.Errorf(cni.InvalidEnvironment, "%s is the node's own network namespace; Pods with hostNetwork need no address", path)
	}
	return nil
}
