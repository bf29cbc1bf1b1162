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
	"strings"
	"time"
)

// builder knows where things are.
type builder struct {
	root, cache string
	say         io.Writer
}

func newBuilder(say io.Writer) (*builder, error) {
	root, err := findRoot()
	if err != nil {
		return nil, err
	}
	cache, err := cacheFolder()
	if err != nil {
		return nil, err
	}
	return &builder{root: root, cache: cache, say: say}, nil
}

// findRoot finds the root of the repository from the working folder.
func findRoot() (string, error) {
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

// cacheFolder is PROA_CACHE, or proa in the cache folder of the user.
func cacheFolder() (string, error) {
	if dir := os.Getenv("PROA_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for built programs: %w; set PROA_CACHE to one", err)
	}
	return filepath.Join(base, "proa"), nil
}

// build compiles a program, unless that has been done with exactly this recipe.
func (b *builder) build(ctx context.Context, name string, p Program) (string, error) {
	pins := filepath.Join(b.root, p.Pins)
	version, err := required(filepath.Join(pins, "go.mod"), p.Module)
	if err != nil {
		return "", err
	}
	sums, err := os.ReadFile(filepath.Join(pins, "go.sum"))
	if err != nil {
		return "", err
	}
	args := p.args(version)
	out := filepath.Join(b.cache, "bin", path.Base(strings.TrimSuffix(p.Module, "/v2"))+"-"+version+"-"+recipe(sums, args, p.Cgo), name)
	if info, err := os.Stat(out); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		return out, nil
	}
	return out, b.compile(ctx, pins, out, args, p)
}

// args are those of the Go tool, but for output and package.
func (p Program) args(version string) []string {
	flags := "-s -w " + strings.ReplaceAll(p.LDFlags, "%s", version)
	return append([]string{"build", "-trimpath", "-tags", p.Tags, "-ldflags", strings.TrimSpace(flags)}, p.Args...)
}

// recipe is a short name for everything that decides what comes out of a build.
func recipe(sums []byte, args []string, cgo bool) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s %s %q %t\n%s", runtime.Version(), runtime.GOOS, runtime.GOARCH, args, cgo, sums)
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// compile writes beside out first, so that an interrupted build never looks like a finished one.
func (b *builder) compile(ctx context.Context, pins, out string, args []string, p Program) error {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil { //nolint:gosec // G301: programs are for everybody
		return err
	}
	partial := fmt.Sprintf("%s.partial.%d", out, os.Getpid())
	defer os.Remove(partial)
	start := time.Now()
	fmt.Fprintf(b.say, "building %s (minutes on a cold cache)\n", out)
	cgo := "CGO_ENABLED=0"
	if p.Cgo {
		cgo = "CGO_ENABLED=1"
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", partial, p.Package)...)
	cmd.Dir = pins
	cmd.Env = append(os.Environ(), cgo, "GOFLAGS=-mod=readonly", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", p.Package, err, tail(text, 2000))
	}
	fmt.Fprintf(b.say, "built %s in %s\n", filepath.Base(out), time.Since(start).Round(time.Second))
	return os.Rename(partial, out)
}

// required reads the version of a module that a go.mod file asks for.
func required(file, module string) (string, error) {
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
