package build

import (
	"archive/tar"
	"bytes"
	"compress/bzip2"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// sources is the group of the lock file that holds source code as its authors
// published it, without what Debian changes.
const sources = "source"

// busyboxSettings are those that differ from the ones busybox comes with: two
// programs more, which Debian's has too, and without tc, which does not compile
// with the headers of newer kernels.
func busyboxSettings() map[string]string {
	return map[string]string{"CONFIG_STATIC": "y", "CONFIG_AR": "y", "CONFIG_UNCOMPRESS": "y", "CONFIG_TC": "n"}
}

// busybox is the program of the image of the same name. Debian's own does not
// do: its shell drops variables whose names are no identifiers, which the suite
// sets, and its wget dies of a timeout that is given. It is better than nothing
// where there is no compiler.
func (k *builder) busybox(ctx context.Context) ([]byte, error) {
	tools, err := findTools(ctx)
	if err == nil {
		return k.makeBusybox(ctx, tools)
	}
	fmt.Fprintf(os.Stderr, "busybox is not built from source: %v; Debian's is taken, with which tests fail that set variables such as data-1\n", err)
	t, err := k.packages(ctx, "busybox")
	if err != nil {
		return nil, err
	}
	program, ok := t["usr/bin/busybox"]
	if !ok {
		return nil, errors.New("the package busybox-static has no /bin/busybox")
	}
	return program.Data, nil
}

// findTools looks for what compiles a static C program, and gives a text that
// changes when the tools do.
func findTools(ctx context.Context) (string, error) {
	for _, name := range []string{"gcc", "make", "bzip2"} {
		if _, err := exec.LookPath(name); err != nil {
			return "", fmt.Errorf("%s is not installed (Debian: apt-get install gcc make bzip2 libc6-dev)", name)
		}
	}
	out, err := exec.CommandContext(ctx, "gcc", "-print-file-name=libc.a").Output()
	if err != nil {
		return "", fmt.Errorf("gcc -print-file-name=libc.a: %w", err)
	}
	library, err := os.ReadFile(strings.TrimSpace(string(out)))
	if err != nil {
		return "", fmt.Errorf("the static C library is not installed (Debian: apt-get install libc6-dev): %w", err)
	}
	version, err := exec.CommandContext(ctx, "gcc", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("gcc --version: %w", err)
	}
	return fmt.Sprintf("%s %x", version, sha256.Sum256(library)), nil
}

// makeBusybox compiles busybox, unless that has been done with the same source,
// settings and tools.
func (k *builder) makeBusybox(ctx context.Context, tools string) ([]byte, error) {
	at := slices.IndexFunc(k.lock, func(l locked) bool { return l.group == sources && l.name == "busybox" })
	if at < 0 {
		return nil, errors.New("the source of busybox is not locked; run: go run ./test/images -lock")
	}
	l := k.lock[at]
	recipe := sha256.Sum256(fmt.Appendln(nil, l, tools, busyboxSettings(), environment()))
	out := filepath.Join(k.cache, "bin", fmt.Sprintf("busybox-%s-%x", l.version, recipe[:6]), "busybox")
	if data, err := os.ReadFile(out); err == nil && len(data) > 0 {
		return data, nil
	}
	tarball, err := fetch(ctx, k.cache, l)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "images-source-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	start := time.Now()
	fmt.Fprintf(os.Stderr, "building %s (a minute or more)\n", out)
	data, err := compileBusybox(ctx, tarball, dir)
	if err != nil {
		return nil, fmt.Errorf("busybox %s: %w", l.version, err)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "built busybox in %s\n", time.Since(start).Round(time.Second))
	return data, replace(out, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// compileBusybox goes from the source to the program, in an empty folder.
func compileBusybox(ctx context.Context, tarball, dir string) ([]byte, error) {
	f, err := os.Open(tarball)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := unpackSource(bzip2.NewReader(f), dir); err != nil {
		return nil, fmt.Errorf("%s: %w", tarball, err)
	}
	if err := runMake(ctx, dir, "defconfig"); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, ".config")
	text, err := os.ReadFile(config)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, []byte(configured(string(text), busyboxSettings())), 0o600); err != nil {
		return nil, err
	}
	// What the settings make new gets its default; every question is answered with an empty line.
	if err := runMake(ctx, dir, "oldconfig"); err != nil {
		return nil, err
	}
	if err := runMake(ctx, dir, "-j2", "busybox"); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "busybox"))
}

// configured is a configuration of busybox with other settings.
func configured(text string, settings map[string]string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "# "), "=")
		name = strings.TrimSuffix(name, " is not set")
		switch value, ok := settings[name]; {
		case !ok:
			out.WriteString(line)
		case value == "n":
			fmt.Fprintf(&out, "# %s is not set\n", name)
		default:
			fmt.Fprintf(&out, "%s=%s\n", name, value)
		}
	}
	return out.String()
}

// environment is that of make: nothing of the caller's goes into the program, and no time does.
func environment() []string {
	return []string{"LC_ALL=C", "KCONFIG_NOTIMESTAMP=1", "SOURCE_DATE_EPOCH=1"}
}

// runMake gives way to the rest of the machine.
func runMake(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", "5", "make"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(environment(), "PATH="+os.Getenv("PATH"), "HOME="+dir, "TMPDIR="+dir)
	cmd.Stdin = strings.NewReader(strings.Repeat("\n", 10000))
	text, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("make %s: %w\n%s", strings.Join(args, " "), err, text[max(0, len(text)-2000):])
	}
	return nil
}

// unpackSource writes the folders and files of an archive, without the folder
// that all of them are in.
func unpackSource(r io.Reader, dir string) error {
	files := tar.NewReader(r)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		_, inside, _ := strings.Cut(h.Name, "/")
		if inside == "" {
			continue
		}
		if !filepath.IsLocal(inside) {
			return fmt.Errorf("%q leads out of the folder", h.Name)
		}
		name := filepath.Join(dir, inside)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(name, 0o755)
		case tar.TypeReg:
			var data bytes.Buffer
			if _, err = io.Copy(&data, files); err == nil {
				err = errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, data.Bytes(), os.FileMode(h.Mode)&0o755))
			}
		default:
			err = fmt.Errorf("%q is neither file nor folder", h.Name)
		}
		if err != nil {
			return err
		}
	}
}
