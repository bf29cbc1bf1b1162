package interruption

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRecordsAreRead checks that records are read by another Records for the same folder, as by another process.
func TestRecordsAreRead(t *testing.T) {
	dir := t.TempDir()
	if _, err := RecordsIn(dir).Add("pod", "a", "b"); err != nil {
		t.Fatal(err)
	}
	if s, err := RecordsIn(dir).Add("pod", "c"); err != nil || !s.Has("a") || !s.Has("c") || s.Has("d") {
		t.Errorf("added: %v %v", s, err)
	}
	s, err := RecordsIn(dir).Of("pod")
	if err != nil || s.Empty() || !s.Has("a") || !s.Has("b") || !s.Has("c") || s.Has("d") {
		t.Errorf("read: %v %v", s, err)
	}
	if s, err := RecordsIn(dir).Of("another"); err != nil || !s.Empty() {
		t.Errorf("of another Pod: %v %v", s, err)
	}
	if err := RecordsIn(dir).Put("pod", Set{ids: map[string]bool{"b": true}}); err != nil {
		t.Fatal(err)
	}
	if s, _ := RecordsIn(dir).Of("pod"); s.Has("a") || !s.Has("b") {
		t.Errorf("replaced: %v", s)
	}
	if err := RecordsIn(dir).Put("pod", Set{}); err != nil {
		t.Fatal(err)
	}
	if s, err := RecordsIn(dir).Of("pod"); err != nil || !s.Empty() {
		t.Errorf("removed: %v %v", s, err)
	}
}

// TestDamagedRecordCountsAllAsInterrupted checks that no container counts as successful because its record cannot be read.
func TestDamagedRecordCountsAllAsInterrupted(t *testing.T) {
	dir := t.TempDir()
	if _, err := RecordsIn(dir).Add("pod", "a"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "interrupted", "pod"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := RecordsIn(dir).Of("pod"); err == nil || !s.Has("z") {
		t.Errorf("got %v %v", s, err)
	}
}
