package run

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSealKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pki", "secrets.key")
	first, err := sealKey(path)
	if err != nil || len(first) != 32 {
		t.Fatal(first, err)
	}
	if again, err := sealKey(path); err != nil || !bytes.Equal(again, first) {
		t.Errorf("a second start has another key: %v", err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	for _, bad := range []string{"", "short", strings.Repeat("!", 44)} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sealKey(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("a key file with %q: %v", bad, err)
		}
	}
}
