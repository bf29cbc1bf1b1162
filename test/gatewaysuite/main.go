// Command gatewaysuite runs the conformance suite of the Gateway API against a cluster of proa with one node that runs containers, and
// writes what came of it into docs/conformance.md. It needs root.
//
//	go run ./test/gatewaysuite
//
// The suite itself is upstream's, built from the module in test/gateway, which also pins its version.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"proa.dev/test/images/build"
	"proa.dev/test/upstream"
)

// options are the flags.
type options struct {
	proa, run, docs string
}

func main() {
	var o options
	flag.StringVar(&o.proa, "proa", "bin/proa", "the `program` to test; what it needs is beside it")
	flag.StringVar(&o.run, "run", "", "run one test of this `name` only, and write nothing")
	flag.StringVar(&o.docs, "docs", "docs/conformance.md", "the `file` whose section is written")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "gatewaysuite:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if os.Geteuid() != 0 {
		return errors.New("the suite runs containers, which needs root")
	}
	programs, err := upstream.Build(ctx, "gateway.test", "kubectl")
	if err != nil {
		return err
	}
	archives, err := build.Archives(ctx, "echo-basic")
	if err != nil {
		return err
	}
	definitions, version, err := module(ctx)
	if err != nil {
		return err
	}
	// Networks that no other cluster of this machine has without settings.
	s, err := upstream.StartProa(ctx, o.proa, "--cluster-cidr", "10.213.0.0/16", "--service-cidr", "10.214.0.0/16", "--node", "node-a",
		"--node-port", "0", "--ingress-class", "off", "--proxy-healthz", "off", "--proxy-status", "off", "--image-gc-high-threshold", "100",
		"--eviction-hard", "memory.available<50Mi,nodefs.available<1%,imagefs.available<1%")
	if err != nil {
		return err
	}
	defer purge(ctx, o.proa, s)
	load := append([]string{"images", "load", "--data-dir", s.Data}, archives...)
	for _, step := range [][]string{
		{programs["kubectl"], "wait", "--for=create", "node/node-a", "--timeout=1m"},
		{programs["kubectl"], "wait", "--for=condition=Ready", "node/node-a", "--timeout=1m"},
		append([]string{o.proa}, load...),
		{programs["kubectl"], "apply", "--server-side", "-f", definitions},
		{programs["kubectl"], "wait", "--for=create", "gatewayclass/proa", "--timeout=1m"},
		{programs["kubectl"], "wait", "--for=condition=Accepted", "gatewayclass/proa", "--timeout=1m"},
	} {
		if err := command(ctx, s.Kubeconfig, step...).Run(); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(step, " "), err)
		}
	}
	features, err := command(ctx, s.Kubeconfig, programs["kubectl"], "get", "gatewayclass", "proa", "-o",
		"jsonpath={.status.supportedFeatures[*].name}").output()
	if err != nil {
		return err
	}
	return o.suite(ctx, s, suiteRun{program: programs["gateway.test"], version: version, features: strings.Fields(features)})
}

// module finds the definitions of the standard channel, and the version that is pinned.
func module(ctx context.Context) (definitions, version string, err error) {
	root, err := upstream.Root()
	if err != nil {
		return "", "", err
	}
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", "sigs.k8s.io/gateway-api")
	list.Dir = filepath.Join(root, "test", "gateway")
	out, err := list.Output()
	words := strings.Fields(string(out))
	if err != nil || len(words) != 2 {
		return "", "", fmt.Errorf("find the module of the Gateway API: %w", err)
	}
	return filepath.Join(words[0], "config", "crd", "standard"), words[1], nil
}

// suiteRun has the arguments of the suite: all features in the status of the GatewayClass.
type suiteRun struct {
	program, version string
	features         []string
}

// suite runs the tests, and writes the section.
func (o options) suite(ctx context.Context, s *upstream.System, with suiteRun) error {
	dir, err := os.MkdirTemp("", "gatewaysuite-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	report := filepath.Join(dir, "report.yaml")
	args := []string{
		with.program, "-test.v", "-test.run", "^TestConformance$", "-gateway-class", "proa", "-conformance-profiles",
		"GATEWAY-HTTP,GATEWAY-GRPC,GATEWAY-TLS",
		"-supported-features", strings.Join(with.features, ","), "-report-output", report,
		"-organization", "proa", "-project", "proa", "-url", "https://proa.dev", "-version", "main", "-contact", "none",
	}
	if o.run != "" {
		args = append(args, "-run-test", o.run)
	}
	start := time.Now()
	failed := command(ctx, s.Kubeconfig, args...).Run()
	took := time.Since(start).Round(time.Second)
	if o.run != "" {
		return failed
	}
	text, err := os.ReadFile(report)
	if err != nil {
		return errors.Join(failed, err)
	}
	section, err := sectionOf(text, with, took)
	if err != nil {
		return err
	}
	page, err := os.ReadFile(o.docs)
	if err != nil {
		return err
	}
	return errors.Join(failed, os.WriteFile(o.docs, []byte(withSection(string(page), section)),
		0o644))
}

// cmd returns a command for the cluster whose output is printed.
type cmd struct{ *exec.Cmd }

func command(ctx context.Context, kubeconfig string, args ...string) cmd {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return cmd{c}
}

func (c cmd) output() (string, error) {
	c.Stdout = nil
	out, err := c.Output()
	return string(out), err
}

// purge ends the cluster and removes what it has made.
func purge(ctx context.Context, proa string, s *upstream.System) {
	if dead := s.Dead(); dead != "" {
		fmt.Fprintln(os.Stderr, dead)
	}
	s.Halt()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, proa, "down", "--purge", "--now", "--data-dir", s.Data).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "clean up: %v\n%s", err, out)
	}
	s.Stop()
}
