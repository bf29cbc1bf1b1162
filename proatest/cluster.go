// Package proatest runs a whole control plane inside a test: real etcd, real TLS, real HTTP, in one process. Operator
// authors import it; proa's own tests use it too.
package proatest

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"proa.dev/client"
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
	// Client reaches it from inside the process, as its administrator and without a socket.
	Client client.Client
	// Server is the control plane itself.
	Server *run.Server

	stop func()
}

// Option changes the configuration of a cluster before it starts.
type Option func(*run.Config)

// InDir keeps the cluster's data in a folder, so that another one can continue it.
func InDir(dir string) Option { return func(c *run.Config) { c.DataDir = dir } }

// Memory keeps the cluster's objects in memory: no disk is touched when something is written, and nothing is left.
func Memory() Option { return func(c *run.Config) { c.Memory = true } }

// Alone opens no socket: only Client reaches the cluster. With Memory, such a cluster lives inside a testing/synctest bubble,
// where an hour takes no time.
func Alone() Option { return func(c *run.Config) { c.Alone = true } }

// Simulate gives the cluster nodes that are not there: Pods on them go through their phases, and no container runs.
func Simulate(nodes int) Option { return func(c *run.Config) { c.Simulate = nodes } }

// HTTP2 chooses the HTTP/2 server of the cluster: "own", which is the default, or "std" for the one of net/http.
func HTTP2(which string) Option { return func(c *run.Config) { c.HTTP2 = which } }

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
	ready := make(chan *run.Server, 1)
	failed := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
		err := run.Serve(ctx, config, log, func(s *run.Server) { ready <- s })
		if err != nil && ctx.Err() == nil {
			t.Errorf("the cluster has ended: %v", err)
		}
		failed <- err
	})
	c := &Cluster{Dir: config.DataDir, stop: sync.OnceFunc(func() { cancel(); wg.Wait() })}
	t.Cleanup(c.stop)
	select {
	case c.Server = <-ready:
	case err := <-failed:
		t.Fatalf("the cluster did not start: %v", err)
	}
	c.Kubeconfig = c.Server.Kubeconfig()
	c.Client = c.Server.Client(&user.DefaultInfo{Name: "kubernetes-admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}})
	if config.Alone {
		return c
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
