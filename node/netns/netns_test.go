package netns

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestDo(t *testing.T) {
	if err := Do(filepath.Join(t.TempDir(), "none"), func() error { t.Error("it was called"); return nil }); err == nil {
		t.Error("a network that is not there was entered")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may enter a network, even its own")
	}
	want := errors.New("mine")
	if err := Do("/proc/self/ns/net", func() error { return want }); !errors.Is(err, want) {
		t.Error(err)
	}
}
