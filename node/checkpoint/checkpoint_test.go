package checkpoint

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReadWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	var got map[string]int
	if found, err := Read(file, &got); found || err != nil {
		t.Fatalf("a state that is not there: %v, %v", found, err)
	}
	if err := Write(file, map[string]int{"a": 1}); err != nil {
		t.Fatal(err)
	}
	if found, err := Read(file, &got); !found || err != nil || got["a"] != 1 {
		t.Fatalf("read %v, %v, %v", got, found, err)
	}
	for _, rubbish := range []string{`{"data":{"a":2},"checksum":1}`, `{"data":`, ``} {
		if err := os.WriteFile(file, []byte(rubbish), 0o600); err != nil {
			t.Fatal(err)
		}
		if found, err := Read(file, &got); !found || err == nil {
			t.Errorf("%q is read: %v, %v", rubbish, found, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".state-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
