package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestExitsOnSignal checks that the built program waits for a signal, and then exits with code 0.
func TestExitsOnSignal(t *testing.T) {
	program := filepath.Join(t.TempDir(), "pause")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		cmd := exec.CommandContext(t.Context(), program)
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(stderr)
		lines.Scan() // the warning comes after the signals are caught
		if !strings.HasPrefix(lines.Text(), "Warning") {
			t.Errorf("printed %q", lines.Text())
		}
		for _, s := range []os.Signal{syscall.SIGCHLD, signal} {
			if err := cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
		}
		lines.Scan()
		if want := "Shutting down, got signal: " + signal.String(); lines.Text() != want {
			t.Errorf("printed %q, want %q", lines.Text(), want)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("after %s: %v", signal, err)
		}
	}
}
