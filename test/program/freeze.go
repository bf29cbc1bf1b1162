package program

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// freezeTimeout is how long the threads of a process may take to stop.
const freezeTimeout = 30 * time.Second

// Freeze stops a process with SIGSTOP, and returns when every thread of it has stopped: on a busy machine a thread may go on for a moment.
// SIGCONT lets it continue.
func Freeze(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for deadline := time.Now().Add(freezeTimeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(threads, isRunning) {
			return nil
		}
	}
	return errors.New("the process does not stop")
}

// isRunning tells whether a thread, given by its file in /proc, has not been stopped.
func isRunning(file string) bool {
	stat, err := os.ReadFile(file)
	_, state, _ := strings.Cut(string(stat), ") ") // the name of the program may contain spaces
	return err == nil && !strings.HasPrefix(state, "T")
}
