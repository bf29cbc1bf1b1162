package build

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// release is the Debian release that packages come from. Its main archive does
// not change any more but for rare point releases.
const release = "bookworm"

// wanted are the packages that each group of files begins with. What they
// depend on comes with them.
func wanted() map[string][]string {
	return map[string][]string{
		"busybox": {"busybox-static"},
		"debian": {
			"base-files", "base-passwd", "bash", "bind9-dnsutils", "coreutils", "curl", "dash", "debianutils", "findutils", "grep",
			"hostname", "iperf",
			"iproute2", "iputils-ping", "libc-bin", "mawk", "mount", "netcat-openbsd", "procps", "sed", "socat", "tar", "util-linux",
			"wget",
		},
		"nginx": {"nginx", "nginx-common"},
	}
}

// needless are packages that others depend on for the scripts of their
// installation, which are not run here, or for what no test uses.
func needless() []string {
	return []string{"debconf", "dpkg", "init-system-helpers", "perl-base", "perl", "usrmerge", "util-linux-extra"}
}

// locked is one line of the lock file: a package of a group, and where its
// exact version is found.
type locked struct {
	group, name, version, sha256, path string
}

func (l locked) String() string {
	return strings.Join([]string{l.group, l.name, l.version, l.sha256, l.path}, " ")
}

// lockFile names the lock file of this machine's architecture.
func lockFile(root string) string {
	return filepath.Join(root, "test/images/build", "packages_"+runtime.GOARCH+".lock")
}

func readLock(root string) ([]locked, error) {
	data, err := os.ReadFile(lockFile(root))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no Debian packages are locked for %s; on such a machine with Debian run: go run ./test/images -lock", runtime.GOARCH)
	}
	if err != nil {
		return nil, err
	}
	return parseLock(string(data))
}

func parseLock(text string) ([]locked, error) {
	var all []locked
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if len(f) != 5 || len(f[3]) != 64 || !filepath.IsLocal(f[4]) {
			return nil, fmt.Errorf("lock file: %q is not: group package version sha256 path", line)
		}
		all = append(all, locked{f[0], f[1], f[2], f[3], f[4]})
	}
	return all, nil
}

// Lock asks apt which packages the images need today, and writes the lock file.
// It works in folders of its own: the packages of the machine do not matter.
func Lock(ctx context.Context, root string) error {
	dir, err := os.MkdirTemp("", "images-lock-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	a := apt{dir}
	if err := a.prepare(); err != nil {
		return err
	}
	if _, err := a.run(ctx, "apt-get", "update"); err != nil {
		return err
	}
	var all []locked
	taken := map[string]bool{}
	for _, group := range []string{"busybox", "debian", "nginx"} {
		some, err := a.resolve(ctx, group)
		if err != nil {
			return err
		}
		for _, l := range some {
			// nginx stands on the debian layer; busybox stands alone.
			if !taken[l.name] || group == "busybox" {
				all = append(all, l)
			}
			taken[l.name] = taken[l.name] || group != "busybox"
		}
	}
	source, err := a.source(ctx, "busybox")
	if err != nil {
		return err
	}
	all = append(all, source)
	text := "# Debian " + release + " packages of the test images, written by: go run ./test/images -lock\n"
	for _, l := range all {
		text += l.String() + "\n"
	}
	return os.WriteFile(lockFile(root), []byte(text), 0o644)
}

// apt runs apt in a folder, as on a machine where nothing is installed.
type apt struct{ dir string }

func (a apt) prepare() error {
	for _, sub := range []string{"lists/partial", "archives/partial", "state"} {
		if err := os.MkdirAll(filepath.Join(a.dir, sub), 0o755); err != nil {
			return err
		}
	}
	var status strings.Builder
	for _, name := range needless() {
		fmt.Fprintf(&status, "Package: %s\nStatus: install ok installed\nArchitecture: %s\nMulti-Arch: foreign\nVersion: 9999\nMaintainer: nobody\nDescription: left out\n\n", name, runtime.GOARCH)
	}
	from := " [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] " + mirror() + " " + release + " main\n"
	return errors.Join(
		os.WriteFile(filepath.Join(a.dir, "status"), []byte(status.String()), 0o644),
		os.WriteFile(filepath.Join(a.dir, "sources.list"), []byte("deb"+from+"deb-src"+from), 0o644))
}

func (a apt) run(ctx context.Context, program string, args ...string) ([]byte, error) {
	settings := []string{
		"Dir::Etc::SourceList=" + a.dir + "/sources.list", "Dir::Etc::SourceParts=/dev/null", "Dir::State=" + a.dir + "/state",
		"Dir::State::Lists=" + a.dir + "/lists", "Dir::State::status=" + a.dir + "/status", "Dir::Cache=" + a.dir,
		"Debug::NoLocking=1", "APT::Install-Recommends=0", "APT::Sandbox::User=", "Acquire::Languages=none",
	}
	var full []string
	for _, s := range settings {
		full = append(full, "-o", s)
	}
	cmd := exec.CommandContext(ctx, program, append(full, args...)...)
	var text bytes.Buffer
	cmd.Stderr = &text
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s (locking packages needs apt and the package debian-archive-keyring): %w\n%s", program, args[0], err, text.Bytes())
	}
	return out, nil
}

// resolve lists the packages of a group, with all they depend on, by name.
func (a apt) resolve(ctx context.Context, group string) ([]locked, error) {
	plan, err := a.run(ctx, "apt-get", append([]string{"install", "--simulate"}, wanted()[group]...)...)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(plan)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "Inst" {
			names = append(names, f[1])
		}
	}
	slices.Sort(names)
	shown, err := a.run(ctx, "apt-cache", append([]string{"show", "--no-all-versions"}, names...)...)
	if err != nil {
		return nil, err
	}
	return parseShown(group, string(shown)), nil
}

// parseShown reads the paragraphs that apt-cache shows.
func parseShown(group, text string) []locked {
	var all []locked
	one := locked{group: group}
	lines := bufio.NewScanner(strings.NewReader(text + "\n\n"))
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ": ")
		switch key {
		case "Package":
			one.name = value
		case "Version":
			one.version = value
		case "SHA256":
			one.sha256 = value
		case "Filename":
			one.path = value
		case "":
			if one.name != "" {
				all = append(all, one)
			}
			one = locked{group: group}
		}
	}
	return all
}

// source finds the source code of a package as its authors published it.
func (a apt) source(ctx context.Context, name string) (locked, error) {
	shown, err := a.run(ctx, "apt-cache", "showsrc", "--only-source", name)
	if err != nil {
		return locked{}, err
	}
	l, ok := parseSource(name, string(shown))
	if !ok {
		return l, fmt.Errorf("the archive has no %s_*.orig.tar.bz2", name)
	}
	return l, nil
}

// parseSource reads the first paragraph that apt-cache shows of a source package.
// Its list of checksums has a line for each file: sum, size and name.
func parseSource(name, text string) (locked, bool) {
	l := locked{group: sources, name: name}
	folder, key := "", ""
	for line := range strings.Lines(strings.SplitN(strings.TrimSpace(text), "\n\n", 2)[0]) {
		if !strings.HasPrefix(line, " ") {
			var value string
			key, value, _ = strings.Cut(line, ":")
			if key == "Directory" {
				folder = strings.TrimSpace(value)
			}
			continue
		}
		f := strings.Fields(line)
		if key != "Checksums-Sha256" || len(f) != 3 {
			continue
		}
		version, isOriginal := strings.CutSuffix(strings.TrimPrefix(f[2], name+"_"), ".orig.tar.bz2")
		if isOriginal {
			l.version, l.sha256, l.path = version, f[0], f[2]
		}
	}
	if l.path == "" || folder == "" {
		return l, false
	}
	l.path = folder + "/" + l.path
	return l, true
}
