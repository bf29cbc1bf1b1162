// Package build makes the images that tests run, from pinned Go modules,
// locked Debian packages and the locked source of busybox, as OCI archives in
// the cache folder of the user. It needs no privilege: files go from packages
// into layers without touching the disk. An archive is made again only when something that goes into it changes.
//
// The images with names of registry.k8s.io stand in for the published ones,
// which are not always reachable. They hold what the conformance suite relies
// on, and nothing pretends to be what it is not: the kitten image, for one, is
// Debian and says so, although the published one is Alpine.
package build

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"proa.dev/test/images/oci"
	"proa.dev/test/upstream"
)

// Names are the short names of all images that can be built.
func Names() []string { return names(true) }

// names are those of all images, or of those that are meant by all.
func names(asked bool) []string {
	var all []string
	for _, s := range sets() {
		if asked || !s.asked {
			all = append(all, s.images...)
		}
	}
	slices.Sort(all)
	return all
}

// Archives makes sure that the named images are built and gives the archives
// that hold them. A name is one of Names; no names mean all but operators of others. Images that share
// layers share an archive, so one archive may hold more than was asked for.
// Progress goes to stderr, a line for each archive that has to be made.
func Archives(ctx context.Context, wantedNames ...string) ([]string, error) {
	k, err := newKitchen()
	if err != nil {
		return nil, err
	}
	if len(wantedNames) == 0 {
		wantedNames = names(false)
	}
	var wanted []string // sets
	for _, name := range wantedNames {
		at := slices.IndexFunc(sets(), func(s set) bool { return slices.Contains(s.images, name) })
		if at < 0 {
			return nil, fmt.Errorf("there is no image %q; there are %s", name, strings.Join(Names(), ", "))
		}
		wanted = append(wanted, sets()[at].name)
	}
	var paths []string
	for _, s := range sets() {
		if !slices.Contains(wanted, s.name) {
			continue
		}
		path, err := k.archive(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("build images %s: %w", strings.Join(s.images, ", "), err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// set is what goes into one archive: images that share layers.
type set struct {
	name     string
	images   []string // short names
	groups   []string // of Debian packages
	programs []string // of package upstream
	asked    bool     // made only when asked for by name: its programs take long to build, and few tests need it
	own      []string // folders of programs of this module
	busybox  bool     // that program, from its source
	data     []string // files of the module k8s.io/kubernetes
	cook     func(inputs) ([]oci.Image, error)
}

// inputs are all the bytes that go into a set.
type inputs struct {
	programs map[string][]byte
	data     map[string][]byte
	packages map[string]oci.Tree // by group
}

// builder makes sets.
type builder struct {
	root, cache string
	lock        []locked
	dir         string // of the module k8s.io/kubernetes, once it is known
}

func newKitchen() (*builder, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("images are built on Linux; this is %s", runtime.GOOS)
	}
	root, err := upstream.Root()
	if err != nil {
		return nil, err
	}
	cache, err := upstream.Cache()
	if err != nil {
		return nil, err
	}
	lock, err := readLock(root)
	if err != nil {
		return nil, err
	}
	return &builder{root: root, cache: cache, lock: lock}, nil
}

// archive gives the archive of a set, and makes it if it is not there.
func (k *builder) archive(ctx context.Context, s set) (string, error) {
	in, err := k.gather(ctx, s)
	if err != nil {
		return "", err
	}
	key, err := k.key(s, in)
	if err != nil {
		return "", err
	}
	out := filepath.Join(k.cache, "images", key[:16], s.name+".tar")
	now := time.Now()
	if err := os.Chtimes(out, now, now); err == nil {
		return out, nil // and marked as used
	}
	if err := k.prune(s, now); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return "", err
	}
	start := time.Now()
	fmt.Fprintf(os.Stderr, "building %s\n", out)
	for _, group := range s.groups {
		if in.packages[group], err = k.packages(ctx, group); err != nil {
			return "", err
		}
	}
	images, err := s.cook(in)
	if err != nil {
		return "", err
	}
	if err := replace(out, func(w io.Writer) error { return oci.Write(w, images...) }); err != nil {
		return "", err
	}
	fmt.Fprintf(os.Stderr, "built %s in %s\n", filepath.Base(out), time.Since(start).Round(time.Millisecond))
	return out, nil
}

// prune removes the archives of a set that nobody used for a week, so that the
// cache does not grow with every change.
func (k *builder) prune(s set, now time.Time) error {
	old, err := filepath.Glob(filepath.Join(k.cache, "images", "*", s.name+".tar"))
	if err != nil {
		return err
	}
	for _, name := range old {
		info, err := os.Stat(name)
		if err != nil || now.Sub(info.ModTime()) < 7*24*time.Hour {
			continue // somebody else pruned it, or uses it
		}
		if err := os.RemoveAll(filepath.Dir(name)); err != nil {
			return err
		}
	}
	return nil
}

// gather collects the programs and files of a set, and builds what is not yet built.
func (k *builder) gather(ctx context.Context, s set) (inputs, error) {
	in := inputs{programs: map[string][]byte{}, data: map[string][]byte{}, packages: map[string]oci.Tree{}}
	built, err := upstream.Build(ctx, s.programs...)
	if err != nil {
		return in, err
	}
	for name, path := range built {
		if in.programs[name], err = os.ReadFile(path); err != nil {
			return in, err
		}
	}
	for _, folder := range s.own {
		if in.programs[filepath.Base(folder)], err = k.compile(ctx, folder); err != nil {
			return in, err
		}
	}
	if s.busybox {
		if in.programs["busybox"], err = k.busybox(ctx); err != nil {
			return in, err
		}
	}
	for _, name := range s.data {
		if in.data[name], err = k.file(ctx, name); err != nil {
			return in, err
		}
	}
	return in, nil
}

// key is a hash of all that goes into a set, the code that puts it together included.
func (k *builder) key(s set, in inputs) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, s.name, runtime.GOARCH, runtime.Version())
	for _, l := range k.lock {
		if slices.Contains(s.groups, l.group) {
			fmt.Fprintln(h, l)
		}
	}
	for _, part := range []map[string][]byte{in.programs, in.data} {
		for _, name := range slices.Sorted(maps.Keys(part)) {
			fmt.Fprintf(h, "%s %x\n", name, sha256.Sum256(part[name]))
		}
	}
	for _, folder := range []string{"build", "oci"} {
		files, err := filepath.Glob(filepath.Join(k.root, "test/images", folder, "*.go"))
		if err != nil {
			return "", err
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				return "", err
			}
			if !strings.HasSuffix(name, "_test.go") {
				fmt.Fprintf(h, "%s %x\n", filepath.Base(name), sha256.Sum256(data))
			}
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// packages are the files of a group of Debian packages.
func (k *builder) packages(ctx context.Context, group string) (oci.Tree, error) {
	t := oci.Tree{}
	for _, l := range k.lock {
		if l.group != group {
			continue
		}
		deb, err := fetch(ctx, k.cache, l)
		if err != nil {
			return nil, err
		}
		if err := unpack(ctx, t, deb, merged); err != nil {
			return nil, err
		}
	}
	if len(t) == 0 {
		return nil, fmt.Errorf("no packages are locked for %s; run: go run ./test/images -lock", group)
	}
	return t, nil
}

// compile builds a program of this module without the marks of its commit, so
// that the same code gives the same bytes.
func (k *builder) compile(ctx context.Context, folder string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "images-build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "program")
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-o", out,
		"./"+folder)
	cmd.Dir = k.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build ./%s: %w\n%s", folder, err, text)
	}
	return os.ReadFile(out)
}

// file reads a file of the module that the suite comes from.
func (k *builder) file(ctx context.Context, name string) ([]byte, error) {
	if k.dir == "" {
		cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
		cmd.Dir = filepath.Join(k.root, "test/upstream/pins")
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("find the module k8s.io/kubernetes: %w", err)
		}
		if k.dir = strings.TrimSpace(string(out)); k.dir == "" {
			return nil, errors.New("the module k8s.io/kubernetes is not downloaded; run: go mod download k8s.io/kubernetes in test/upstream/pins")
		}
	}
	return os.ReadFile(filepath.Join(k.dir, "test/images", name))
}
