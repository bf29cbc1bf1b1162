package podnetwork

import (
	"os"
	"path/filepath"
	"testing"
)

// TestReadSysctls checks that any file of former sysctls is read as a list that can be added to, or as an error.
func TestReadSysctls(t *testing.T) {
	for text, want := range map[string]int{`{"net.ipv4.ip_forward":"0"}`: 1, `{}`: 0, `null`: 0, `[]`: -1, ``: -1} {
		file := filepath.Join(t.TempDir(), "former")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		former, err := readSysctls(file)
		if err != nil {
			former = nil
		}
		if got := len(former); err == nil && got != want || (err != nil) != (want < 0) || err == nil && former == nil {
			t.Errorf("%q: got %v, %v", text, former, err)
		}
	}
}
