package parts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// builder builds programs from the repository into the cache.
type builder struct {
	root, cache string
	say         io.Writer
}

func newBuilder(say io.Writer) (*builder, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	cache, err := Cache()
	if err != nil {
		return nil, err
	}
	return &builder{root: root, cache: cache, say: say}, nil
}

// Root finds the root of the repository from the working folder.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if data, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && bytes.HasPrefix(data, []byte("module proa.dev\n")) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod of module proa.dev above the working folder; run this inside the repository")
		}
		dir = parent
	}
}

// Cache returns the folder of built programs: PROA_CACHE, or proa in the cache folder of the user.
func Cache() (string, error) {
	if dir := os.Getenv("PROA_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for built programs: %w; set PROA_CACHE to one", err)
	}
	return filepath.Join(base, "proa"), nil
}

// build compiles a program, unless the cache has it with exactly this recipe.
func (b *builder) build(ctx context.Context, name string, p Program) (string, error) {
	pins := filepath.Join(b.root, p.Pins)
	version, err := Version(filepath.Join(pins, "go.mod"), p.Module)
	if err != nil {
		return "", err
	}
	sums, err := os.ReadFile(filepath.Join(pins, "go.sum"))
	if err != nil {
		return "", err
	}
	args := p.args(version)
	out := filepath.Join(b.cache, "bin", path.Base(strings.TrimSuffix(p.Module, "/v2"))+"-"+version+"-"+recipe(sums, args, p.Cgo), name)
	if Built(out) {
		return out, nil
	}
	cgo := "CGO_ENABLED=0"
	if p.Cgo {
		cgo = "CGO_ENABLED=1"
	}
	return out, Compile(ctx, b.say,
		Job{Folder: pins, Out: out, Args: args, Package: p.Package, Env: []string{cgo, "GOFLAGS=-mod=readonly"}})
}

// Built reports whether a program is in the cache.
func Built(out string) bool {
	info, err := os.Stat(out)
	return err == nil && info.Mode().IsRegular() && info.Size() > 0
}

// args returns the arguments of the Go tool, except for output and package.
func (p Program) args(version string) []string {
	flags := "-s -w " + strings.ReplaceAll(p.LDFlags, "%s", version)
	return append([]string{"build", "-trimpath", "-tags", p.Tags, "-ldflags", strings.TrimSpace(flags)}, p.Args...)
}

// recipe returns a hash of everything that determines the output of a build.
func recipe(sums []byte, args []string, cgo bool) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s %s %q %t\n%s", runtime.Version(), runtime.GOOS, runtime.GOARCH, args, cgo, sums)
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// Job is one program to compile.
type Job struct {
	Folder  string // in which the Go tool runs
	Out     string
	Args    []string // of the Go tool, except for output and package
	Package string
	Env     []string
}

// Compile compiles a program. It writes to a temporary file first, so that an interrupted build never looks like a
// finished one.
func Compile(ctx context.Context, say io.Writer, j Job) error {
	if err := os.MkdirAll(filepath.Dir(j.Out), 0o755); err != nil { //nolint:gosec // G301: programs are for everybody
		return err
	}
	partial := fmt.Sprintf("%s.partial.%d", j.Out, os.Getpid())
	defer os.Remove(partial)
	start := time.Now()
	fmt.Fprintf(say, "building %s (minutes on a cold cache)\n", j.Out)
	if err := Go(ctx, j.Folder, j.Env, append(slices.Clone(j.Args), "-o", partial, j.Package)...); err != nil {
		return err
	}
	fmt.Fprintf(say, "built %s in %s\n", filepath.Base(j.Out), time.Since(start).Round(time.Second))
	return os.Rename(partial, j.Out)
}

// Go runs the Go tool in a folder, without any workspace. The error has its output.
func Go(ctx context.Context, folder string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // G204: the callers' words are constants
	cmd.Dir = folder
	cmd.Env = append(append(os.Environ(), "GOWORK=off"), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", args[0], err, tail(text, 2000))
	}
	return nil
}

// Version returns the version of a module that a go.mod file requires.
func Version(file, module string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(data)
	if m == nil {
		return "", fmt.Errorf("%s does not require %s", file, module)
	}
	return string(m[1]), nil
}

func tail(data []byte, n int) string {
	if len(data) > n {
		data = data[len(data)-n:]
	}
	return strings.TrimSpace(string(data))
}
