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

// TestStoreRejectsForeignFolder checks that "proa store" neither reads nor repairs a folder that is not the data folder of a
// cluster: that of another etcd, or that of an agent.
func TestStoreRejectsForeignFolder(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		make, want string
		works      bool
	}{
		{"etcd/member/wal", "there is no cluster in", false},
		{"node", "has no folder pki", false}, // the folder of an agent
		{"pki", "No damage was found", true},
	} {
		if err := os.MkdirAll(filepath.Join(dir, c.make), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, action := range []string{"check", "repair"} {
			var out bytes.Buffer
			err := runCommand(t.Context(), &command.Env{Out: &out, Err: &out}, []string{"store", action, "--data-dir", dir})
			if text := fmt.Sprint(out.String(), err); (err == nil) != c.works || !strings.Contains(text, c.want) {
				t.Errorf("%s after %s was made: %s, want %q", action, c.make, text, c.want)
			}
		}
	}
}
