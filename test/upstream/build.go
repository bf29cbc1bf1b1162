// Package upstream builds the pinned upstream programs that proa is compared
// with, and starts them, and proa itself, as throw-away systems on loopback.
// It owns the cache folder of built programs and the temporary folders of the
// systems it starts. It is test machinery: nothing of the product imports it.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"proa.dev/parts"
)

// OldKubectl is the version of the older kubectl that compatibility is shown
// with: more than three minors behind the API that proa serves.
const OldKubectl = "v0.33.13"

// pins is the folder, seen from the repository root, of the module that pins
// the upstream programs. Those that are no part of Kubernetes are pinned in
// folders below it, so that their versions never meet.
const pins = "test/upstream/pins"

// gatewayModule is the folder, seen from pins, of the module that runs the conformance suite of the Gateway API.
const gatewayModule = "../../gateway"

// certManager is the folder below pins of cert-manager.
const certManager = "cert-manager"

// program describes how an upstream program is built from its pinned module.
type program struct {
	module string // whose version names the output folder
	pkg    string
	pins   string // the folder below pins of a module of its own
	test   bool   // a test binary: go test -c
	// version is the variable that holds the program's version.
	version string
}

// programs returns all programs that Build can build, by the name of the output.
func programs() map[string]program {
	const (
		kubernetes = "k8s.io/kubernetes"
		coredns    = "github.com/coredns/coredns"
		helm       = "helm.sh/helm/v4"
		helm3      = "helm.sh/helm/v3"
		h2spec     = "github.com/summerwind/h2spec"
		gateway    = "sigs.k8s.io/gateway-api/conformance"
		issuer     = "github.com/cert-manager/cert-manager"
		metrics    = "sigs.k8s.io/metrics-server"
		otelcol    = "go.opentelemetry.io/collector/otelcol"
	)
	return map[string]program{
		"kube-apiserver":          {module: kubernetes, pkg: kubernetes + "/cmd/kube-apiserver"},
		"kube-controller-manager": {module: kubernetes, pkg: kubernetes + "/cmd/kube-controller-manager"},
		"kube-scheduler":          {module: kubernetes, pkg: kubernetes + "/cmd/kube-scheduler"},
		"kubelet":                 {module: kubernetes, pkg: kubernetes + "/cmd/kubelet"},
		"kube-proxy":              {module: kubernetes, pkg: kubernetes + "/cmd/kube-proxy"},
		"kubectl":                 {module: kubernetes, pkg: kubernetes + "/cmd/kubectl"},
		"e2e.test":                {module: kubernetes, pkg: kubernetes + "/test/e2e", test: true},
		"etcd":                    {module: "go.etcd.io/etcd/server/v3", pkg: "go.etcd.io/etcd/server/v3"},
		"agnhost":                 {module: kubernetes, pkg: kubernetes + "/test/images/agnhost"},
		"nonewprivs":              {module: kubernetes, pkg: kubernetes + "/test/images/nonewprivs"},
		"sample-apiserver":        {module: "k8s.io/sample-apiserver", pkg: "k8s.io/sample-apiserver"},
		"coredns":                 {module: coredns, pkg: ".", pins: "coredns"},
		"helm":                    {module: helm, pkg: helm + "/cmd/helm", pins: "helm", version: helm + "/internal/version.version"},
		"helm3":                   {module: helm3, pkg: helm3 + "/cmd/helm", pins: "helm3", version: helm3 + "/internal/version.version"},
		"h2spec":                  {module: h2spec, pkg: h2spec + "/cmd/h2spec", pins: "h2spec"},
		"echo-basic":              {module: gateway, pkg: gateway + "/echo-basic", pins: gatewayModule},
		"cert-manager-controller": {module: issuer, pkg: issuer + "/cmd/controller", pins: certManager},
		"cert-manager-webhook":    {module: issuer, pkg: issuer + "/cmd/webhook", pins: certManager},
		"cert-manager-cainjector": {module: issuer, pkg: issuer + "/cmd/cainjector", pins: certManager},
		"cert-manager-ctl":        {module: issuer, pkg: issuer + "/cmd/ctl", pins: certManager},
		"metrics-server":          {module: metrics, pkg: metrics + "/cmd/metrics-server", pins: "metrics-server"},
		"otelcol":                 {module: otelcol, pkg: ".", pins: "otelcol"},
		"gateway.test":            {module: gateway, pkg: ".", pins: gatewayModule, test: true},
	}
}

// Root finds the root of the repository from the working folder.
func Root() (string, error) { return parts.Root() }

// Cache is the folder that holds what Build made.
func Cache() (string, error) { return parts.Cache() }

// Build makes sure that the named programs exist and returns their paths by
// name. Progress goes to stderr, a line for each program that has to be built.
// The name "kubectl-old" is the older kubectl.
func Build(ctx context.Context, names ...string) (map[string]string, error) {
	root, cache, err := folders()
	if err != nil {
		return nil, err
	}
	paths := make(map[string]string, len(names))
	for _, name := range names {
		out, err := outputOf(root, cache, name)
		if err == nil && !parts.Built(out) {
			if name == oldKubectlName {
				err = buildOldKubectl(ctx, cache, out)
			} else {
				err = buildPinned(ctx, root, out, name)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("build %s: %w", name, err)
		}
		paths[name] = out
	}
	return paths, nil
}

// Find returns the paths of programs that Build has made before, by name. It builds nothing, which takes minutes: a
// test that others wait for is skipped with the error when a program is missing.
func Find(names ...string) (map[string]string, error) {
	root, cache, err := folders()
	if err != nil {
		return nil, err
	}
	paths := make(map[string]string, len(names))
	for _, name := range names {
		out, err := outputOf(root, cache, name)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", name, err)
		}
		if !parts.Built(out) {
			return nil, fmt.Errorf("%s is not built yet: run go run ./test/upstream/cmd %s", name, strings.Join(names, " "))
		}
		paths[name] = out
	}
	return paths, nil
}

// folders are the root of the repository and the cache.
func folders() (root, cache string, err error) {
	if root, err = Root(); err != nil {
		return "", "", err
	}
	cache, err = Cache()
	return root, cache, err
}

// oldKubectlName is the name of the older kubectl.
const oldKubectlName = "kubectl-old"

// outputOf returns the path of a built program.
func outputOf(root, cache, name string) (string, error) {
	if name == oldKubectlName {
		return filepath.Join(cache, "bin", "kubernetes-"+oldKubectlVersion(), "kubectl"), nil
	}
	p, ok := programs()[name]
	if !ok {
		return "", errors.New("unknown program")
	}
	version, err := p.pinned(root)
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "bin", p.family()+"-"+version, name), nil
}

// pinned is the version of a program.
func (p program) pinned(root string) (string, error) {
	return parts.Version(filepath.Join(root, pins, p.pins, "go.mod"), p.module)
}

func buildPinned(ctx context.Context, root, out, name string) error {
	p := programs()[name]
	version, err := p.pinned(root)
	if err != nil {
		return err
	}
	args := []string{"build"}
	if p.test {
		args = []string{"test", "-c"}
	}
	flags := "-s -w"
	if p.module == "k8s.io/kubernetes" {
		flags += versionFlags(version)
	}
	if p.version != "" {
		flags += " -X " + p.version + "=" + version
	}
	args = append(args, "-trimpath", "-ldflags", flags)
	return compile(ctx, filepath.Join(root, pins, p.pins), out, args, p.pkg)
}

// family is the name of a module without its major version.
func (p program) family() string {
	return path.Base(strings.TrimSuffix(regexp.MustCompile(`/v[0-9]+$`).ReplaceAllString(p.module, ""), "/server"))
}

// versionFlags are the linker flags that give an upstream program the version
// it would carry in a release.
func versionFlags(version string) string {
	const pkg = " -X k8s.io/component-base/version."
	words := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	return pkg + "gitVersion=" + version + pkg + "gitMajor=" + words[0] + pkg + "gitMinor=" + words[1] + pkg + "gitTreeState=clean"
}

// environment returns the environment of the Go tool. The pins may name modules whose sums are not recorded yet.
func environment() []string { return []string{"CGO_ENABLED=0", "GOFLAGS=-mod=mod"} }

func compile(ctx context.Context, dir, out string, args []string, pkg string) error {
	return parts.Compile(ctx, os.Stderr, parts.Job{Folder: dir, Out: out, Args: args, Package: pkg, Env: environment()})
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

// oldKubectlVersion is the version of Kubernetes that the older kubectl belongs to.
func oldKubectlVersion() string { return "v1" + strings.TrimPrefix(OldKubectl, "v0") }

func buildOldKubectl(ctx context.Context, cache, out string) error {
	version := oldKubectlVersion()
	dir := filepath.Join(cache, "src", "kubectl-"+version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files := map[string]string{
		"main.go": oldKubectlMain,
		"go.mod":  "module oldkubectl\n\ngo 1.24.0\n\nrequire (\n\tk8s.io/component-base " + OldKubectl + "\n\tk8s.io/kubectl " + OldKubectl + "\n)\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := parts.Go(ctx, dir, environment(), "mod", "tidy"); err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-ldflags", "-s -w" + versionFlags(version)}
	return compile(ctx, dir, out, args, ".")
}

func tail(data []byte, n int) string {
	if len(data) > n {
		data = data[len(data)-n:]
	}
	return strings.TrimSpace(string(data))
}
