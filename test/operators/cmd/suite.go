package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"proa.dev/parts"
	"proa.dev/test/upstream"
)

const (
	suiteName   = "controller-runtime"
	suiteModule = "sigs.k8s.io/controller-runtime"
)

// runSuite runs packages of the suite, or all of them and writes the results.
func runSuite(ctx context.Context, docs string, only []string) error {
	root, err := upstream.Root()
	if err != nil {
		return err
	}
	version, err := parts.Version(filepath.Join(root, "examples/operator/go.mod"), suiteModule)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "operators-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	assets, source := filepath.Join(dir, "assets"), filepath.Join(dir, "source")
	if err := errors.Join(makeAssets(ctx, root, assets), copyModule(ctx, suiteModule+"@"+version, source)); err != nil {
		return err
	}
	packages, err := envtestPackages(source)
	if err != nil {
		return err
	}
	var all []outcome
	for _, p := range packages {
		if len(only) > 0 && !slices.Contains(only, p) {
			continue
		}
		o := try(ctx, source, assets, p)
		if !o.ok && known()[p] == "" { // as with ports that another process takes first
			o = try(ctx, source, assets, p)
		}
		fmt.Println(o.row())
		if !o.ok {
			fmt.Fprintln(os.Stderr, o.output)
		}
		all = append(all, o)
	}
	if len(all) == 0 {
		return fmt.Errorf("no package is called so; there are %s", strings.Join(packages, ", "))
	}
	if docs != "" && len(only) == 0 {
		return writeSection(filepath.Join(root, docs), version, all)
	}
	return unexpected(all)
}

// makeAssets fills the folder that KUBEBUILDER_ASSETS names.
func makeAssets(ctx context.Context, root, dir string) error {
	bins, err := upstream.Build(ctx, "kubectl")
	if err != nil {
		return err
	}
	server := filepath.Join(dir, "kube-apiserver")
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-o", server, "./proatest/assets")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the API server: %w\n%s", err, out)
	}
	return errors.Join(os.Symlink(server, filepath.Join(dir, "etcd")), os.Symlink(bins["kubectl"], filepath.Join(dir, "kubectl")))
}

// copyModule copies a module out of the module cache, where nothing may be written. Scripts can be run again, which a
// module does not record.
func copyModule(ctx context.Context, module, to string) error {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = os.TempDir()
	out, err := cmd.Output()
	var answer struct{ Dir, Error string }
	if err := errors.Join(err, json.Unmarshal(out, &answer)); err != nil || answer.Error != "" {
		return fmt.Errorf("download %s: %w %s", module, err, answer.Error)
	}
	return filepath.WalkDir(answer.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, answer.Dir))
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if strings.HasSuffix(path, ".sh") {
			mode = 0o755
		}
		return os.WriteFile(target, data, mode)
	})
}

// envtestPackages are the packages below pkg whose tests speak of envtest.
func envtestPackages(source string) ([]string, error) {
	var out []string
	base := filepath.Join(source, "pkg")
	err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		if p, inside := filepath.Rel(base, filepath.Dir(path)); inside == nil && bytes.Contains(data, []byte("envtest")) &&
			!slices.Contains(out, p) {
			out = append(out, p)
		}
		return err
	})
	slices.Sort(out)
	return out, err
}

// try runs the tests of a package.
func try(ctx context.Context, source, assets, name string) outcome {
	cmd := exec.CommandContext(ctx, "go", "test", "-v", "-count=1", "-timeout=20m", "./pkg/"+name)
	// what the tests leave there goes with it
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0", "KUBEBUILDER_ASSETS="+assets, "TMPDIR="+filepath.Dir(assets))
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	return judge(name, string(out), err == nil, time.Since(begin))
}
