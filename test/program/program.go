// Package program writes programs that a test runs afterwards, and freezes processes.
package program

import (
	"os"
	"syscall"
)

// Write writes an executable file. A child process that another goroutine forks meanwhile would inherit the open file until it
// calls exec, and Linux does not run a program that is open for writing ("text file busy"), so forks are blocked until the file is
// closed.
func Write(path string, data []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, data, 0o700)
}
