// Command pause is the first process of every Pod: it holds the namespaces that the containers of the Pod share, reaps
// orphaned child processes, and ends on SIGINT or SIGTERM.
package main

import (
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

func main() {
	debug.SetGCPercent(-1) // nothing is allocated from here on
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	if os.Getpid() != 1 {
		say("Warning: pause should be the first process")
	}
	reap() // children that ended before the signals were caught
	for s := range signals {
		if s != syscall.SIGCHLD {
			say("Shutting down, got signal: " + s.String())
			return
		}
		reap()
	}
}

// say writes a line without package fmt, which would be most of the program.
func say(line string) { _, _ = os.Stderr.WriteString(line + "\n") }

// reap reaps every child that has ended. Signals of several children may arrive as one.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}
