package subprocess

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestHoldAndTerminate checks that a process is identified by its arguments, and can be held by a process that did not start it and
// terminated.
func TestHoldAndTerminate(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may enter a network namespace, even its own")
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("sleep is not installed: ", err)
	}
	p, err := Start(Command{Program: sleep, Args: []string{"1000"}, Log: filepath.Join(t.TempDir(), "log"), Namespace: "/proc/self/ns/net"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	again, err := Hold(p.Pid)
	if err != nil || again == nil {
		t.Fatal("the process is not found: ", err)
	}
	defer again.Release()
	// A program has been started before the kernel shows its arguments.
	for deadline := time.Now().Add(time.Minute); Arguments(p.Pid) == nil && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if !p.Own() || again.Own() {
		t.Error("Own is wrong")
	}
	if again.Runs([]string{sleep, "1001"}) || again.Runs([]string{"/proc/self/exe", "1000"}) {
		t.Error("Runs accepts other arguments")
	}
	if !again.Runs([]string{sleep, "1000"}) {
		t.Error("Runs does not accept its arguments")
	}
	if err := again.Terminate(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	<-p.Done
	if err := p.Terminate(t.Context(), time.Minute); err != nil {
		t.Errorf("terminating an ended process: %v", err)
	}
	if ended, err := Hold(p.Pid); err != nil || ended != nil {
		t.Errorf("%v, %v: an ended process is held", ended, err)
	}
}

// TestProcessThatIgnoresSIGTERMIsKilled checks that Terminate kills a process that ignores SIGTERM.
func TestProcessThatIgnoresSIGTERMIsKilled(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may enter a network namespace, even its own")
	}
	logFile := filepath.Join(t.TempDir(), "log")
	p, err := Start(Command{Program: "/bin/sh", Args: []string{"-c", "trap '' TERM; echo ready; exec sleep 1000"}, Log: logFile,
		Namespace: "/proc/self/ns/net"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	for range 1000 {
		if text, err := os.ReadFile(logFile); err == nil && len(text) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond) // until it ignores SIGTERM
	}
	if err := p.Terminate(t.Context(), 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	<-p.Done
}
