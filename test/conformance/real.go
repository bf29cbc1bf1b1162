package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"proa.dev/test/images/build"
	"proa.dev/test/registry"
	"proa.dev/test/upstream"
)

// realCluster starts a cluster with nodes that run containers, and gives it the images of the suite: loaded under their
// own names, and in a registry on this machine for the tests that always pull.
func realCluster(ctx context.Context, f flags, kubectl string) (kubeconfig string, stop func(), err error) {
	archives, err := build.Archives(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("build the images: %w", err)
	}
	mirrors, err := os.MkdirTemp("", "mirrors-")
	if err != nil {
		return "", nil, err
	}
	undo := []func(){func() { _ = os.RemoveAll(mirrors) }}
	stop = func() {
		for _, u := range slices.Backward(undo) {
			u()
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	// The disk of a machine that builds is often nearly full; that is not what is tested here.
	s, err := upstream.StartProa(ctx, f.proa, "--node", "node-a", "--nodes", strconv.Itoa(f.realNodes), "--node-port", "0",
		"--registry-dir", mirrors, "--image-gc-high-threshold", "100",
		"--eviction-hard", "memory.available<50Mi,nodefs.available<1%,imagefs.available<1%")
	if err != nil {
		return "", nil, err
	}
	undo = append(undo, func() { purge(ctx, f.proa, s) })
	ask := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, kubectl, append([]string{"--kubeconfig", s.Kubeconfig}, args...)...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return string(out), nil
	}
	for i := range f.realNodes {
		name := "node/node-a"
		if i > 0 {
			name += "-" + strconv.Itoa(i+1)
		}
		for _, state := range []string{"create", "condition=Ready"} {
			if _, err := ask("wait", "--for", state, name, "--timeout", "2m"); err != nil {
				return "", nil, err
			}
		}
	}
	// Nodes in namespaces of their own do not share the loopback of this machine, but reach the address of the first.
	listen := ""
	if f.realNodes > 1 {
		ip, err := ask("get", "node", "node-a", "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
		if err != nil {
			return "", nil, err
		}
		listen = net.JoinHostPort(strings.Fields(ip)[0], "0")
	}
	store, err := registry.Start(ctx, registry.Options{Archives: archives, Listen: listen})
	if err != nil {
		return "", nil, err
	}
	undo = append(undo, func() { _ = store.Close() })
	if err := store.Mirror(mirrors, "registry.k8s.io"); err != nil {
		return "", nil, err
	}
	load := exec.CommandContext(ctx, f.proa, append([]string{"images", "load", "--data-dir", s.Data}, archives...)...)
	load.Stdout, load.Stderr = os.Stderr, os.Stderr
	if err := load.Run(); err != nil {
		return "", nil, fmt.Errorf("load the images: %w", err)
	}
	return s.Kubeconfig, stop, nil
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
