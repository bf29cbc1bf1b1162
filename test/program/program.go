// Package program writes programs that a test runs afterwards.
package program

import (
	"os"
	"syscall"
)

// Write writes a program. A child that another test of the process forks in this moment would have the file open for
// writing until it is the program it shall be, and Linux runs no program that somebody writes ("text file busy"): so
// nobody forks until the file is closed.
func Write(path string, data []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, data, 0o700)
}
