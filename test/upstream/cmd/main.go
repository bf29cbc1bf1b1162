// Command cmd builds upstream programs and prints their paths, one a line, so
// that scripts and Makefile targets can use them:
//
//	KUBECTL=$(go run ./test/upstream/cmd kubectl)
//
// The names are etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
// kubelet, kube-proxy, kubectl, kubectl-old, e2e.test, agnhost, nonewprivs, sample-apiserver,
// coredns, helm, helm3, metrics-server and the programs of cert-manager: cert-manager-controller,
// cert-manager-webhook, cert-manager-cainjector and cert-manager-ctl.
//
// With the word run it instead starts a whole upstream control plane, prints
// the path of its admin kubeconfig once the default ServiceAccount is there,
// and keeps it running until it is interrupted, or the "go run" above it is:
//
//	go run ./test/upstream/cmd run --dir DIR --port PORT
//
// With -start it starts etcd and kube-apiserver alone, with the controllers
// that are asked for.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"proa.dev/test/upstream"
)

func main() {
	start := flag.Bool("start", false, "start etcd and kube-apiserver instead")
	controllers := flag.String("controllers", "", "with -start: controllers to run, separated by commas")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	var err error
	switch {
	case flag.Arg(0) == "run":
		err = runWhole(ctx, flag.Args()[1:])
	case *start:
		opts := upstream.Options{}
		if *controllers != "" {
			opts.Controllers = strings.Split(*controllers, ",")
		}
		err = hold(ctx, opts)
	default:
		err = build(ctx, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

func build(ctx context.Context, names []string) error {
	paths, err := upstream.Build(ctx, names...)
	if err != nil {
		return err
	}
	for _, name := range names {
		fmt.Println(paths[name])
	}
	return nil
}

func runWhole(ctx context.Context, args []string) error {
	opts := upstream.Options{Whole: true}
	set := flag.NewFlagSet("run", flag.ExitOnError)
	set.StringVar(&opts.Dir, "dir", "", "folder to use, which stays; by default a temporary one")
	set.IntVar(&opts.Port, "port", 0, "port of the API on loopback; by default a free one")
	if err := set.Parse(args); err != nil {
		return err
	}
	return hold(ctx, opts)
}

// hold keeps a system running until the context ends, the "go run" that
// started it is gone (it does not hand signals on), or one of its processes ends.
func hold(ctx context.Context, opts upstream.Options) error {
	parent := os.Getppid()
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent))
	underGo := strings.TrimSpace(string(name)) == "go"
	s, err := upstream.Start(ctx, opts)
	if err != nil {
		return err
	}
	defer s.Stop()
	if opts.Whole {
		if err := waitAccount(ctx, s); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "ready after %s, processes %v\n", s.Ready.Round(time.Millisecond), s.Pids())
	fmt.Println(s.Kubeconfig)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
		if underGo && os.Getppid() != parent {
			return nil
		}
		if dead := s.Dead(); dead != "" {
			return errors.New(dead)
		}
	}
}

// waitAccount waits for the default ServiceAccount: then the controllers run.
func waitAccount(ctx context.Context, s *upstream.System) error {
	config, err := s.Config()
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/api/v1/namespaces/default/serviceaccounts/default", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no default ServiceAccount: %w\n%s", ctx.Err(), s.Log())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
