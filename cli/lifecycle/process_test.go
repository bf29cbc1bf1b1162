package lifecycle

import (
	"os"
	"os/exec"
	"testing"
)

func TestIsEnding(t *testing.T) {
	if IsEnding(os.Getpid()) {
		t.Error("this process is ending")
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Skip("there is no sleep here: ", err)
	}
	if IsEnding(cmd.Process.Pid) {
		t.Error("a process that was started is ending")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !IsEnding(cmd.Process.Pid) { // it is being killed, or a zombie
		t.Error("a process that was killed is not ending")
	}
	_ = cmd.Wait()
	if !IsEnding(cmd.Process.Pid) {
		t.Error("a process that has ended is not ending")
	}
}
