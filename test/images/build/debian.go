package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"proa.dev/test/images/oci"
)

// maxPackage bounds one download.
const maxPackage = 200 << 20

// mirror is where Debian packages come from: what the environment says, or else the first archive that apt of this machine
// takes packages from. It is empty where there is none.
func mirror() string {
	if m := os.Getenv("PROA_DEBIAN_MIRROR"); m != "" {
		return strings.TrimSuffix(m, "/")
	}
	files := []string{"/etc/apt/sources.list"}
	for _, pattern := range []string{"*.sources", "*.list"} {
		more, err := filepath.Glob("/etc/apt/sources.list.d/" + pattern)
		if err == nil {
			files = append(files, more...)
		}
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if m := archive(string(text)); err == nil && m != "" {
			return m
		}
	}
	return ""
}

// archive finds the first archive in a list of sources, old style or new, that is not one of security updates.
func archive(sources string) string {
	for line := range strings.Lines(sources) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "deb" && words[0] != "URIs:" {
			continue
		}
		for _, w := range words[1:] {
			if strings.HasPrefix(w, "http") && !strings.Contains(w, "security") {
				return strings.TrimSuffix(w, "/")
			}
		}
	}
	return ""
}

// fetch makes sure that a package is in the cache folder and gives its path.
// What is there has been checked against the lock file before it got there.
func fetch(ctx context.Context, cache string, l locked) (string, error) {
	out := filepath.Join(cache, "debs", l.sha256[:16]+"-"+path.Base(l.path))
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return "", err
	}
	if mirror() == "" {
		return "", fmt.Errorf("package %s %s: apt of this machine names no archive; say one with PROA_DEBIAN_MIRROR", l.name, l.version)
	}
	data, err := download(ctx, mirror()+"/"+l.path)
	if err != nil {
		return "", fmt.Errorf("package %s %s: %w; if the archive has a newer one, run: go run ./test/images -lock", l.name, l.version, err)
	}
	if got := sha256.Sum256(data); hex.EncodeToString(got[:]) != l.sha256 {
		return "", fmt.Errorf("package %s %s: what %s sent has the SHA-256 %x, the lock file says %s", l.name, l.version, mirror(), got, l.sha256)
	}
	return out, replace(out, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

func download(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", url, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxPackage))
}

// replace writes a file under another name first, so that an interrupted run,
// or two at once, never leave half of it.
func replace(out string, write func(io.Writer) error) error {
	partial, err := os.CreateTemp(filepath.Dir(out), "."+filepath.Base(out)+".partial-")
	if err != nil {
		return err
	}
	defer os.Remove(partial.Name())
	if err := errors.Join(write(partial), partial.Chmod(0o644), partial.Close()); err != nil {
		return err
	}
	return os.Rename(partial.Name(), out)
}

// unpack adds the files of a package to a tree. They never touch the disk, so
// owners and setuid bits survive without any privilege.
func unpack(ctx context.Context, t oci.Tree, deb string, rename func(string) string) error {
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	var data, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &data, &text
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return errors.New("dpkg-deb is not installed; it unpacks Debian packages and is part of the package dpkg of most distributions")
	}
	if err != nil {
		return fmt.Errorf("dpkg-deb %s: %w: %s", deb, err, text.String())
	}
	if err := t.Read(&data, rename); err != nil {
		return fmt.Errorf("%s: %w", deb, err)
	}
	return nil
}

// merged gives the path of a file where /bin, /sbin and /lib are links into
// /usr, as on every Debian since 12, and none to what only people read.
func merged(name string) string {
	for _, skip := range []string{"usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian",
		"usr/share/bug", "usr/share/bash-completion"} {
		if name == skip || strings.HasPrefix(name, skip+"/") {
			return ""
		}
	}
	top, _, inside := strings.Cut(name, "/")
	switch top {
	case "bin", "sbin", "lib", "lib32", "lib64", "libx32":
		if !inside {
			return "" // rootLinks makes them
		}
		return "usr/" + name
	}
	return name
}

func rootLinks(t oci.Tree) {
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		t.Dir(0o755, "usr/"+name)
		t.Link(name, "usr/"+name)
	}
}
