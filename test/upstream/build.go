// Package upstream builds the pinned upstream programs that proa is compared
// with, and starts them, and proa itself, as throw-away systems on loopback.
// It owns the cache folder of built programs and the temporary folders of the
// systems it starts. It is test machinery: nothing of the product imports it.
package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// OldKubectl is the version of the older kubectl that compatibility is shown
// with: more than three minors behind the API that proa serves.
const OldKubectl = "v0.33.13"

// pins is the folder, seen from the repository root, of the module that pins
// the upstream programs.
const pins = "test/upstream/pins"

// program says how one upstream program is built from the pinned module.
type program struct {
	module string // whose version names the output folder
	pkg    string
	test   bool // a test binary: go test -c
}

// programs are all that Build knows, by the name of the output.
func programs() map[string]program {
	const kubernetes = "k8s.io/kubernetes"
	return map[string]program{
		"kube-apiserver":          {module: kubernetes, pkg: kubernetes + "/cmd/kube-apiserver"},
		"kube-controller-manager": {module: kubernetes, pkg: kubernetes + "/cmd/kube-controller-manager"},
		"kube-scheduler":          {module: kubernetes, pkg: kubernetes + "/cmd/kube-scheduler"},
		"kubectl":                 {module: kubernetes, pkg: kubernetes + "/cmd/kubectl"},
		"e2e.test":                {module: kubernetes, pkg: kubernetes + "/test/e2e", test: true},
		"etcd":                    {module: "go.etcd.io/etcd/server/v3", pkg: "go.etcd.io/etcd/server/v3"},
		"agnhost":                 {module: kubernetes, pkg: kubernetes + "/test/images/agnhost"},
		"nonewprivs":              {module: kubernetes, pkg: kubernetes + "/test/images/nonewprivs"},
		"sample-apiserver":        {module: "k8s.io/sample-apiserver", pkg: "k8s.io/sample-apiserver"},
	}
}

// Root finds the root of the repository from the working folder.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(data, []byte("module proa.dev\n")) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("not inside the proa repository (no go.mod of module proa.dev above the working folder)")
		}
		dir = parent
	}
}

// Cache is the folder that holds what Build made: PROA_CACHE, or proa in the
// cache folder of the user.
func Cache() (string, error) {
	if dir := os.Getenv("PROA_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(base, "proa"), nil
}

// Build makes sure that the named programs exist and returns their paths by
// name. Progress goes to stderr, a line for each program that has to be built.
// The name "kubectl-old" is the older kubectl.
func Build(ctx context.Context, names ...string) (map[string]string, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	cache, err := Cache()
	if err != nil {
		return nil, err
	}
	paths := make(map[string]string, len(names))
	for _, name := range names {
		var path string
		if name == "kubectl-old" {
			path, err = buildOldKubectl(ctx, cache)
		} else {
			path, err = buildPinned(ctx, filepath.Join(root, pins), cache, name)
		}
		if err != nil {
			return nil, fmt.Errorf("build %s: %w", name, err)
		}
		paths[name] = path
	}
	return paths, nil
}

func buildPinned(ctx context.Context, module, cache, name string) (string, error) {
	p, ok := programs()[name]
	if !ok {
		return "", errors.New("unknown program")
	}
	version, err := required(filepath.Join(module, "go.mod"), p.module)
	if err != nil {
		return "", err
	}
	out := filepath.Join(cache, "bin", filepath.Base(strings.TrimSuffix(strings.TrimSuffix(p.module, "/v3"), "/server"))+"-"+version, name)
	if done(out) {
		return out, nil
	}
	args := []string{"build"}
	if p.test {
		args = []string{"test", "-c"}
	}
	flags := "-s -w"
	if p.module == "k8s.io/kubernetes" {
		flags += versionFlags(version)
	}
	args = append(args, "-trimpath", "-ldflags", flags)
	return out, compile(ctx, module, out, args, p.pkg)
}

// versionFlags are the linker flags that give an upstream program the version
// it would carry in a release.
func versionFlags(version string) string {
	const pkg = " -X k8s.io/component-base/version."
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	return pkg + "gitVersion=" + version + pkg + "gitMajor=" + parts[0] + pkg + "gitMinor=" + parts[1] + pkg + "gitTreeState=clean"
}

// compile runs one go build with its output in a file beside out, so that an
// interrupted build never looks like a finished one.
func compile(ctx context.Context, dir, out string, args []string, pkg string) error {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	partial := fmt.Sprintf("%s.partial.%d", out, os.Getpid())
	defer os.Remove(partial)
	start := time.Now()
	fmt.Fprintf(os.Stderr, "building %s (minutes on a cold cache)\n", out)
	if err := goTool(ctx, dir, append(args, "-o", partial, pkg)...); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "built %s in %s\n", filepath.Base(out), time.Since(start).Round(time.Second))
	return os.Rename(partial, out)
}

func goTool(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=mod", "GOWORK=off")
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &text
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", args[0], err, tail(text.Bytes(), 2000))
	}
	return nil
}

// oldKubectlMain is the whole program around the published kubectl library.
const oldKubectlMain = `package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}
`

func buildOldKubectl(ctx context.Context, cache string) (string, error) {
	version := "v1" + strings.TrimPrefix(OldKubectl, "v0")
	out := filepath.Join(cache, "bin", "kubernetes-"+version, "kubectl")
	if done(out) {
		return out, nil
	}
	dir := filepath.Join(cache, "src", "kubectl-"+version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	files := map[string]string{
		"main.go": oldKubectlMain,
		"go.mod":  "module oldkubectl\n\ngo 1.24.0\n\nrequire (\n\tk8s.io/component-base " + OldKubectl + "\n\tk8s.io/kubectl " + OldKubectl + "\n)\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	if err := goTool(ctx, dir, "mod", "tidy"); err != nil {
		return "", err
	}
	args := []string{"build", "-trimpath", "-ldflags", "-s -w" + versionFlags(version)}
	return out, compile(ctx, dir, out, args, ".")
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

func done(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Size() > 0
}

func tail(data []byte, n int) string {
	if len(data) > n {
		data = data[len(data)-n:]
	}
	return strings.TrimSpace(string(data))
}
