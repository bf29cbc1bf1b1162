package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/cli/command"
)

// TestStoreOfAnotherEtcd: a folder in which some other etcd lives is no cluster, and "proa store" neither reads nor repairs it.
func TestStoreOfAnotherEtcd(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		make, want string
		works      bool
	}{
		{"etcd/member/wal", "there is no cluster in", false},
		{"node", "has no folder pki", false}, // that of an agent
		{"pki", "No damage was found", true},
	} {
		if err := os.MkdirAll(filepath.Join(dir, c.make), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, do := range []string{"check", "repair"} {
			var out bytes.Buffer
			err := runCommand(t.Context(), &command.Env{Out: &out, Err: &out}, []string{"store", do, "--data-dir", dir})
			if text := fmt.Sprint(out.String(), err); (err == nil) != c.works || !strings.Contains(text, c.want) {
				t.Errorf("%s after %s was made: %s, want %q", do, c.make, text, c.want)
			}
		}
	}
}
