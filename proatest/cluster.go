// Package proatest runs a whole control plane inside a test: real etcd, real TLS, real HTTP, in one process. Operator
// authors import it; proa's own tests use it too.
package proatest

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"proa.dev/run"
)

// Cluster is a running control plane.
type Cluster struct {
	// Config reaches it as its administrator.
	Config *rest.Config
	// Kubeconfig is a file for kubectl and the like.
	Kubeconfig string
	// Dir is its data folder.
	Dir string

	stop func()
}

// Option changes the configuration of a cluster before it starts.
type Option func(*run.Config)

// InDir keeps the cluster's data in a folder, so that another one can continue it.
func InDir(dir string) Option { return func(c *run.Config) { c.DataDir = dir } }

// Start starts a cluster and stops it when the test ends.
func Start(t testing.TB, options ...Option) *Cluster {
	t.Helper()
	config := run.Default()
	config.Listen, config.DataDir = "127.0.0.1:0", ""
	for _, o := range options {
		o(&config)
	}
	if config.DataDir == "" {
		config.DataDir = t.TempDir()
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready := make(chan string, 1)
	failed := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
		failed <- run.Serve(ctx, config, log, func(s *run.Server) { ready <- s.Kubeconfig() })
	})
	c := &Cluster{Dir: config.DataDir, stop: sync.OnceFunc(func() { cancel(); wg.Wait() })}
	t.Cleanup(c.stop)
	select {
	case c.Kubeconfig = <-ready:
	case err := <-failed:
		t.Fatalf("the cluster did not start: %v", err)
	}
	var err error
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	c.Config.QPS, c.Config.Burst = -1, 0
	return c
}

// Stop ends the cluster before the test does.
func (c *Cluster) Stop() { c.stop() }
