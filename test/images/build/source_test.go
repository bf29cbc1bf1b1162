package build

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigured(t *testing.T) {
	text := "# a comment\n# CONFIG_A is not set\nCONFIG_AB=y\nCONFIG_B=y\nCONFIG_C=\"x\"\n"
	want := "# a comment\nCONFIG_A=y\nCONFIG_AB=y\n# CONFIG_B is not set\nCONFIG_C=\"x\"\n"
	if got := configured(text, map[string]string{"CONFIG_A": "y", "CONFIG_B": "n"}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestParseSource(t *testing.T) {
	text := "Package: b\nFiles:\n bad 5 b_1.orig.tar.bz2\nChecksums-Sha256:\n x 1 b_1-2.dsc\n " + hello + " 5 b_1.orig.tar.bz2\nDirectory: pool/b\n\nPackage: b\nDirectory: pool/older\n"
	want := locked{sources, "b", "1", hello, "pool/b/b_1.orig.tar.bz2"}
	if got, ok := parseSource("b", text); !ok || got != want {
		t.Errorf("%v, %t; want %v", got, ok, want)
	}
	for _, bad := range []string{"", "Package: b\nDirectory: pool/b\n", "Checksums-Sha256:\n x 1 b_1.orig.tar.bz2\n"} {
		if got, ok := parseSource("b", bad); ok {
			t.Errorf("%q gives %v", bad, got)
		}
	}
}

// TestUnpackSource unpacks one valid file, and checks that several invalid ones are rejected.
func TestUnpackSource(t *testing.T) {
	for _, test := range []struct {
		h    tar.Header
		want string // of the error
	}{
		{tar.Header{Name: "top/sub/file", Typeflag: tar.TypeReg, Mode: 0o4755, Size: 5}, ""},
		{tar.Header{Name: "top/../../out", Typeflag: tar.TypeReg, Mode: 0o644, Size: 5}, "leads out"},
		{tar.Header{Name: "top/link", Typeflag: tar.TypeSymlink, Linkname: "/"}, "neither file nor folder"},
	} {
		var data bytes.Buffer
		w := tar.NewWriter(&data)
		err := w.WriteHeader(&test.h)
		if test.h.Size > 0 {
			_, writeErr := w.Write([]byte("hello"))
			err = errors.Join(err, writeErr)
		}
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		err = unpackSource(&data, dir)
		if test.want != "" {
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v; want %q", test.h.Name, err, test.want)
			}
			continue
		}
		info, statErr := os.Stat(filepath.Join(dir, "sub/file"))
		if err != nil || statErr != nil || info.Mode() != 0o755 || info.Size() != 5 {
			t.Errorf("%s: %v, %v, %v", test.h.Name, err, statErr, info)
		}
	}
}
