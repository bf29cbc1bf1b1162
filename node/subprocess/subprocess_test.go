package subprocess

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestProcess holds that a process is identified by its arguments, can be held by a process that did not start it, and can be
// ended.
func TestProcess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may enter a network namespace, even its own")
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("there is no sleep here: ", err)
	}
	p, err := Start(Command{Program: sleep, Args: []string{"1000"}, Log: filepath.Join(t.TempDir(), "log"), Namespace: "/proc/self/ns/net"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	again, err := Hold(p.Pid)
	if err != nil || again == nil {
		t.Fatal("it is not found: ", err)
	}
	defer again.Release()
	if !p.Own() || again.Own() {
		t.Error("whose child it is, is not known")
	}
	if again.Runs([]string{sleep, "1001"}) || again.Runs([]string{"/proc/self/exe", "1000"}) {
		t.Error("it was taken for another")
	}
	if !again.Runs([]string{sleep, "1000"}) {
		t.Error("it was not known again")
	}
	if err := again.Terminate(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	<-p.Done
	if err := p.Terminate(t.Context(), time.Minute); err != nil {
		t.Errorf("it has ended, and could not be ended again: %v", err)
	}
	if gone, err := Hold(p.Pid); err != nil || gone != nil {
		t.Errorf("%v, %v: a process that is gone is held", gone, err)
	}
}

// TestStubborn holds that a process that ignores SIGTERM is killed.
func TestStubborn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may enter a network namespace, even its own")
	}
	ready := filepath.Join(t.TempDir(), "log")
	p, err := Start(Command{Program: "/bin/sh", Args: []string{"-c", "trap '' TERM; echo deaf; exec sleep 1000"}, Log: ready,
		Namespace: "/proc/self/ns/net"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	for range 1000 {
		if text, err := os.ReadFile(ready); err == nil && len(text) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond) // it has to say first that it will not listen
	}
	if err := p.Terminate(t.Context(), 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	<-p.Done
}
