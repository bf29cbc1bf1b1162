// Package netns runs functions in the network namespace of a Pod or of a node. A network namespace belongs to a thread,
// so each function has a thread of its own.
package netns

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Do calls a function with its thread in the network namespace of a file. The function must not start goroutines that
// use the network: they would run on other threads. A process that it starts is in the namespace, too.
func Do(path string, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- enter(path, do) }()
	return <-done
}

func enter(path string, do func() error) error {
	there, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open the network of the pod: %w", err)
	}
	defer func() { _ = there.Close() }()
	runtime.LockOSThread() // for ever if the return fails: the thread then ends with its goroutine
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("find the network of the node: %w", err)
	}
	defer func() { _ = here.Close() }()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the network of the pod: %w", err)
	}
	err = do()
	if unix.Setns(int(here.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return err
}
