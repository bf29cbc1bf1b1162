package program_test

import (
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"proa.dev/test/program"
)

// TestWrite checks that a program that is written while other programs are started can be run at once.
func TestWrite(t *testing.T) {
	path, err := exec.LookPath("true")
	if err != nil {
		t.Skip(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		dir := t.TempDir()
		wg.Go(func() {
			for range 50 {
				if err := program.Write(filepath.Join(dir, "p"), []byte("#!"+path+"\n")); err != nil {
					t.Error(err)
				}
				if err := exec.CommandContext(t.Context(), filepath.Join(dir, "p")).Run(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
