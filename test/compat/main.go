// Command compat is the differential oracle: it sends the same requests to
// upstream kube-apiserver and to proa and compares what a client can see:
//
//	go run ./test/compat [-focus REGEX] [-json OUT] [-text OUT]
//	go run ./test/compat -upstream-only     compare upstream with itself
//
// The requests of a kind are derived from upstream's discovery, a minimal valid
// object (corpus/minimal.yaml), the fully filled example of the published API
// module, and hand-written cases (corpus/cases). Custom kinds come with their
// definitions and both objects (corpus/custom.yaml). What objects do together,
// as policies and webhooks deciding, is told by scripts (corpus/scripts); the
// webhooks are those of corpus/hooks.yaml. A difference that matches a
// line of explained.txt is counted apart; the number of requests that differ
// for no written reason may only fall (ratchet.json).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"proa.dev/test/compat/compatcases"
	"proa.dev/test/upstream"
)

type flags struct {
	proa, focus, json, text, docs    string
	proaConfig, upstreamConfig, step string
	upstreamOnly, update, verbose    bool
	show                             bool
	workers                          int
}

func parse() flags {
	var f flags
	flag.StringVar(&f.proa, "proa", "bin/proa", "the proa binary")
	flag.StringVar(&f.focus, "focus", "", "only cases whose name (resource.group/version) matches this expression")
	flag.StringVar(&f.step, "step", "", "only report steps whose name matches this expression")
	flag.StringVar(&f.json, "json", "", "write every difference as JSON to this file")
	flag.StringVar(&f.text, "text", "", "write the grouped differences as text to this file (default: standard output)")
	flag.StringVar(&f.docs, "docs", "", "write the summary as Markdown to this file")
	flag.StringVar(&f.proaConfig, "proa-kubeconfig", "", "use this running proa instead of starting one")
	flag.StringVar(&f.upstreamConfig, "upstream-kubeconfig", "", "use this running upstream instead of starting one")
	flag.BoolVar(&f.upstreamOnly, "upstream-only", false, "compare two upstream systems: must show no difference")
	flag.BoolVar(&f.update, "update", false, "lower the ratchet to what was found")
	flag.BoolVar(&f.verbose, "v", false, "print each case when it is done")
	flag.BoolVar(&f.show, "show", false, "with -step: print both answers of the matching steps")
	flag.IntVar(&f.workers, "workers", 4, "cases at a time")
	flag.Parse()
	return f
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, parse()); err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
		os.Exit(1)
	}
}

// controllers are the controllers of upstream's controller manager that run: those without which its API server would
// answer otherwise. All others do not run on either side, so that a step finds its object as the step before left it.
func controllers() []string {
	return []string{
		"serviceaccount-controller", "root-ca-certificate-publisher-controller", "namespace-controller",
		"clusterrole-aggregation-controller",
		"persistentvolume-protection-controller", "persistentvolumeclaim-protection-controller",
		"volumeattributesclass-protection-controller",
		"validatingadmissionpolicy-status-controller",
	}
}

// proaControllers are proa's names of the same controllers, and of those that are part of upstream's API server.
func proaControllers() []string {
	return []string{
		"service-account-controller", "root-ca-cert-publisher", "namespace-controller", "clusterrole-aggregation-controller",
		"pv-protection-controller", "pvc-protection-controller", "volumeattributesclass-protection-controller",
		"crd-finalizer", "crd-status-controller", "autoregister", "local-availability-controller", "aggregated-availability-controller",
		"flow-schema-controller", "validatingadmissionpolicy-status-controller", "cluster-authentication-trust-controller",
	}
}

func run(ctx context.Context, f flags) error {
	root, err := upstream.Root()
	if err != nil {
		return err
	}
	home := filepath.Join(root, "test", "compat")
	focus, err := regexp.Compile(f.focus)
	if err != nil {
		return fmt.Errorf("focus: %w", err)
	}
	only, err := regexp.Compile(f.step)
	if err != nil {
		return fmt.Errorf("step: %w", err)
	}
	reasons, err := readExplained(filepath.Join(home, "explained.txt"))
	if err != nil {
		return err
	}
	a, stopA, err := open(ctx, "upstream", f.upstreamConfig, startUpstream)
	if err != nil {
		return err
	}
	defer stopA()
	second := func(ctx context.Context) (*upstream.System, error) {
		return upstream.StartProa(ctx, f.proa, "--controllers", strings.Join(proaControllers(), ","))
	}
	if f.upstreamOnly {
		second = startUpstream
	}
	b, stopB, err := open(ctx, "proa", f.proaConfig, second)
	if err != nil {
		return err
	}
	defer stopB()
	hooks, err := startHooks(filepath.Join(home, "corpus", "hooks.yaml"))
	if err != nil {
		return err
	}
	defer hooks.stop()
	corpus, err := compatcases.LoadCorpus(ctx, filepath.Join(home, "corpus"), hooks.words())
	if err != nil {
		return err
	}
	cases, err := compatcases.Plan(ctx, a, corpus, focus)
	if err != nil {
		return err
	}
	begin := time.Now()
	results := (&engine{a: a, b: b, verbose: f.verbose, only: only, show: f.show && f.step != ""}).run(ctx, cases, f.workers)
	if err := ctx.Err(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d cases in %s\n", len(results), time.Since(begin).Round(time.Second))
	return conclude(f, home, newSummary(results, reasons))
}

func startUpstream(ctx context.Context) (*upstream.System, error) {
	return upstream.Start(ctx, upstream.Options{Controllers: controllers()})
}

// open connects to a running system, or starts one and returns how to stop it.
func open(ctx context.Context, name, kubeconfig string, start func(context.Context) (*upstream.System, error)) (*compatcases.Target, func(),
	error) {
	stop := func() {}
	if kubeconfig == "" {
		s, err := start(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("start %s: %w", name, err)
		}
		kubeconfig = s.Kubeconfig
		stop = func() {
			if dead := s.Dead(); dead != "" {
				fmt.Fprintln(os.Stderr, dead)
			}
			s.Stop()
		}
	}
	t, err := compatcases.NewTarget(name, kubeconfig)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return t, stop, nil
}

func conclude(f flags, home string, s *summary) error {
	if f.json != "" {
		if err := s.writeJSON(f.json); err != nil {
			return err
		}
	}
	if f.text == "" {
		fmt.Print(s.text(40))
	} else if err := os.WriteFile(f.text, []byte(s.text(0)), 0o644); err != nil {
		return err
	}
	fmt.Println(s.line())
	if f.focus == "" && f.step == "" && !f.upstreamOnly {
		fmt.Print(s.unmatched())
	}
	if f.upstreamOnly {
		if s.unexplained > 0 {
			return errors.New("upstream differs from itself: the masks or the corpus are wrong")
		}
		return nil
	}
	if f.docs != "" {
		if err := os.WriteFile(f.docs, []byte(s.markdown()), 0o644); err != nil {
			return err
		}
	}
	if f.focus != "" || f.step != "" {
		return nil
	}
	return ratchet(filepath.Join(home, "ratchet.json"), s, f.update)
}
