package datafolder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNewerFolderIsRefused checks that a program refuses the folder of a newer one, or one whose mark it cannot read, and changes
// nothing there; and that it marks every other folder as its own.
func TestNewerFolderIsRefused(t *testing.T) {
	for _, c := range []struct{ name, mark, refusal string }{
		{"a new folder, or one of a program that wrote no mark", "", ""},
		{"another build with the same format", `{"format":1,"build":"v9.9.9"}`, ""},
		{"a newer format", `{"format":2,"build":"v9.9.9","more":"of a later version"}`, "was written by a newer proa (build v9.9.9, data format 2) than this one (build "},
		{"an empty mark", "\n", "cannot be read"},
		{"a damaged mark", `{"format":`, "cannot be read"},
		{"a mark without a format", `{"build":"v9.9.9"}`, "it has the data format 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			mark := filepath.Join(dir, versionFile)
			if c.mark != "" {
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(mark, []byte(c.mark), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			release, err := Lock(dir, 0)
			if c.refusal == "" {
				if err != nil {
					t.Fatal(err)
				}
				release()
				if v, err := ReadVersion(dir); err != nil || v != ThisVersion() {
					t.Errorf("the folder is marked %+v, %v", v, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.refusal) || !strings.Contains(err.Error(), dir) {
				t.Errorf("got error %v", err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("the folder has %v, %v", entries, err)
			}
			if now, err := os.ReadFile(mark); err != nil || string(now) != c.mark {
				t.Errorf("the mark is now %s, %v", now, err)
			}
		})
	}
}
