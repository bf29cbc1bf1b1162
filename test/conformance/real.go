package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"proa.dev/test/images/build"
	"proa.dev/test/registry"
	"proa.dev/test/upstream"
)

// realCluster starts a cluster with a node that runs containers, and gives it the images of the suite: loaded under their
// own names, and in a registry on loopback for the tests that always pull.
func realCluster(ctx context.Context, f flags) (string, func(), error) {
	archives, err := build.Archives(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("build the images: %w", err)
	}
	mirrors, err := os.MkdirTemp("", "mirrors-")
	if err != nil {
		return "", nil, err
	}
	store, err := registry.Start(ctx, registry.Options{Archives: archives})
	if err != nil {
		return "", nil, err
	}
	if err := store.Mirror(mirrors, "registry.k8s.io"); err != nil {
		return "", nil, err
	}
	// The disk of a machine that builds is often nearly full; that is not what is tested here.
	s, err := upstream.StartProa(ctx, f.proa, "--node", "node-a", "--node-port", "0", "--registry-dir", mirrors, "--image-gc-high-threshold", "100",
		"--eviction-hard", "memory.available<50Mi,nodefs.available<1%,imagefs.available<1%")
	if err != nil {
		return "", nil, err
	}
	stop := func() {
		if dead := s.Dead(); dead != "" {
			fmt.Fprintln(os.Stderr, dead)
		}
		s.Halt()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer cancel()
		if out, err := exec.CommandContext(ctx, f.proa, "down", "--purge", "--data-dir", s.Data).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "clean up: %v\n%s", err, out)
		}
		s.Stop()
		_ = store.Close()
		_ = os.RemoveAll(mirrors)
	}
	load := exec.CommandContext(ctx, f.proa, append([]string{"images", "load", "--data-dir", s.Data}, archives...)...)
	load.Stdout, load.Stderr = os.Stderr, os.Stderr
	if err := load.Run(); err != nil {
		stop()
		return "", nil, fmt.Errorf("load the images: %w", err)
	}
	return s.Kubeconfig, stop, nil
}
