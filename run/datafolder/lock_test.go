package datafolder

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestHolder(t *testing.T) {
	dir := t.TempDir()
	if pid, err := LockHolder(dir); pid != 0 || err != nil {
		t.Errorf("a new folder is held by %d, %v", pid, err)
	}
	// The process ID that a killed process has left in the file is not used.
	if err := os.WriteFile(filepath.Join(dir, pidFile), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if pid, err := LockHolder(dir); pid != 0 || err != nil {
		t.Errorf("a folder that is not locked is held by %d, %v", pid, err)
	}
	if d := StopTime(dir); d != 20*time.Second {
		t.Errorf("a process without a stop time may take %v to stop", d)
	}
	release, err := Lock(dir, 90*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if d := StopTime(dir); d != 90*time.Second {
		t.Errorf("the holder may take %v to stop", d)
	}
	release()
	if _, err := os.Stat(filepath.Join(dir, pidFile)); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
}
