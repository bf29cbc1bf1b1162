package checkpoint

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestReadWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	var got map[string]int
	if found, err := Read(file, &got); found || err != nil {
		t.Fatalf("a file that does not exist: %v, %v", found, err)
	}
	if err := Write(file, map[string]int{"a": 1}); err != nil {
		t.Fatal(err)
	}
	if found, err := Read(file, &got); !found || err != nil || got["a"] != 1 {
		t.Fatalf("read %v, %v, %v", got, found, err)
	}
	for _, damaged := range []string{`{"data":{"a":2},"checksum":1}`, `{"data":`, ``} {
		if err := os.WriteFile(file, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if found, err := Read(file, &got); !found || err == nil {
			t.Errorf("%q is read: %v, %v", damaged, found, err)
		}
	}
	if temporary, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".state-*")); len(temporary) > 0 {
		t.Errorf("temporary files are left: %q", temporary)
	}
}

// FuzzRead reads arbitrary files: a value that is read without an error can be written, and is read again.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"data":{"a":2},"checksum":1}`))
	f.Add([]byte(`{"data":{"a":1},"checksum":17146228441424480612}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		file := filepath.Join(t.TempDir(), "state")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		var got, again map[string]any
		found, err := Read(file, &got)
		if !found {
			t.Fatal("an existing file is not found")
		}
		if err != nil {
			return
		}
		if err := Write(file, got); err != nil {
			t.Fatalf("%v cannot be written: %v", got, err)
		}
		if _, err := Read(file, &again); err != nil || !reflect.DeepEqual(got, again) {
			t.Errorf("%v became %v, %v", got, again, err)
		}
	})
}
