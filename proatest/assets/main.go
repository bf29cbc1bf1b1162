// Command assets replaces the two programs that envtest starts, so that a suite written for envtest runs on proa unchanged. Under
// the name kube-apiserver it is the API server of proa with the flags that envtest passes; under the name etcd it only answers
// health checks. KUBEBUILDER_ASSETS is to be a folder with the program under both names.
//
// As with the real programs, only the controllers run that kube-apiserver contains; the flag --controllers=* runs all.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	go func() { // a suite that fails does not stop the programs it has started
		for parent := os.Getppid(); os.Getppid() == parent; time.Sleep(time.Second) {
		}
		cancel()
	}()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := play(ctx, log, filepath.Base(os.Args[0]), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// play runs the program of a name.
func play(ctx context.Context, log *slog.Logger, name string, args []string) error {
	var start func(context.Context, *slog.Logger, flags) error
	var known map[string]bool
	switch name {
	case "etcd":
		start, known = serveEtcd, etcdFlags()
	case "kube-apiserver":
		start, known = serveAPI, apiFlags()
	default:
		return fmt.Errorf("this program is called kube-apiserver or etcd, not %s", name)
	}
	given, err := parse(args, known)
	if err != nil {
		return err
	}
	if _, help := given["help"]; help {
		printFlags(os.Stdout, known)
		return nil
	}
	return start(ctx, log, given)
}
