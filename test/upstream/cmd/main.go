// Command cmd builds upstream programs and prints their paths, one a line, so
// that scripts and Makefile targets can use them:
//
//	KUBECTL=$(go run ./test/upstream/cmd kubectl)
//
// With -start it instead starts an upstream control plane, prints the path of
// its admin kubeconfig, and keeps it running until it is interrupted.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"proa.dev/test/upstream"
)

func main() {
	start := flag.Bool("start", false, "start an upstream control plane instead")
	controllers := flag.String("controllers", "", "with -start: controllers to run, separated by commas")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	var err error
	if *start {
		err = hold(ctx, *controllers)
	} else {
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

func hold(ctx context.Context, controllers string) error {
	var opts upstream.Options
	if controllers != "" {
		opts.Controllers = strings.Split(controllers, ",")
	}
	s, err := upstream.Start(ctx, opts)
	if err != nil {
		return err
	}
	defer s.Stop()
	fmt.Fprintf(os.Stderr, "ready after %s, processes %v\n", s.Ready.Round(1e6), s.Pids())
	fmt.Println(s.Kubeconfig)
	<-ctx.Done()
	return nil
}
