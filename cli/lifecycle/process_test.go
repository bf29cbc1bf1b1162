package lifecycle

import (
	"os"
	"os/exec"
	"testing"
)

func TestEnding(t *testing.T) {
	if IsEnding(os.Getpid()) {
		t.Error("this process is about to go")
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Skip("there is no sleep here: ", err)
	}
	if IsEnding(cmd.Process.Pid) {
		t.Error("a process that has begun is about to go")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !IsEnding(cmd.Process.Pid) { // it is killed, or dead and not waited for
		t.Error("a process that was killed stays")
	}
	_ = cmd.Wait()
	if !IsEnding(cmd.Process.Pid) {
		t.Error("a process that is gone stays")
	}
}
