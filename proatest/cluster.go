// Package proatest runs a whole control plane inside a test: real etcd, real TLS, real HTTP, in one process. Operator
// authors import it; proa's own tests use it too.
package proatest

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"proa.dev/client"
	"proa.dev/run"
)

// Cluster is a running control plane.
type Cluster struct {
	// Config has the address and credentials of its administrator.
	Config *rest.Config
	// Kubeconfig is a file for kubectl and the like.
	Kubeconfig string
	// Dir is its data folder.
	Dir string
	// Client is a client of its administrator inside the process, which needs no socket.
	Client client.Client
	// Server is the control plane itself.
	Server *run.Server

	stop func()
}

// Option changes the configuration of a cluster before it starts.
type Option func(*run.Config)

// InDir keeps the cluster's data in a folder, so that another one can continue it.
func InDir(dir string) Option { return func(c *run.Config) { c.DataDir = dir } }

// Memory keeps the cluster's objects in memory: writes do not touch the disk, and nothing is left after the test.
func Memory() Option { return func(c *run.Config) { c.InMemory = true } }

// Alone makes the cluster open no socket: only Client can be used. With Memory, such a cluster can run inside a
// testing/synctest bubble, where an hour takes no time.
func Alone() Option { return func(c *run.Config) { c.InProcess = true } }

// Simulate gives the cluster simulated nodes: Pods on them go through their phases, but no container runs.
func Simulate(nodes int) Option { return func(c *run.Config) { c.Simulate = nodes } }

// Controllers chooses the controllers that run, as the setting of that name does: Controllers("*", "-deployment-controller") leaves
// Deployments to the test.
func Controllers(names ...string) Option { return func(c *run.Config) { c.Controllers = names } }

// HTTP2 chooses the HTTP/2 server of the cluster: "own", which is the default, or "std" for the one of net/http.
func HTTP2(which string) Option { return func(c *run.Config) { c.HTTP2 = which } }

// Start starts a cluster and stops it when the test ends.
func Start(t testing.TB, options ...Option) *Cluster {
	t.Helper()
	config := configOf(options)
	if config.DataDir == "" {
		config.DataDir = t.TempDir()
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	c, err := launch(t.Context(), config, log, func(err error) { t.Errorf("the cluster has ended: %v", err) })
	if err != nil {
		t.Fatalf("the cluster did not start: %v", err)
	}
	t.Cleanup(c.Stop)
	return c
}

// Launch starts a cluster for code that has no testing.TB, such as TestMain. ctx bounds the start; the cluster runs until Stop. Its data
// are in a temporary folder, which Stop removes, unless InDir names one.
func Launch(ctx context.Context, log *slog.Logger, options ...Option) (*Cluster, error) {
	config := configOf(options)
	remove := func() {}
	if config.DataDir == "" {
		dir, err := os.MkdirTemp("", "proatest-")
		if err != nil {
			return nil, err
		}
		config.DataDir = dir
		remove = func() {
			if err := os.RemoveAll(dir); err != nil {
				log.Error("cannot remove the folder of the cluster", "error", err)
			}
		}
	}
	c, err := launch(ctx, config, log, func(err error) { log.Error("the cluster has ended", "error", err) })
	if err != nil {
		remove()
		return nil, err
	}
	stop := c.stop
	c.stop = sync.OnceFunc(func() { stop(); remove() })
	return c, nil
}

// configOf returns the configuration of a cluster for tests. Its data folder is empty unless an option names one.
func configOf(options []Option) run.Config {
	config := run.Default()
	config.Listen, config.DataDir = "127.0.0.1:0", ""
	config.ShutdownTimeout = 2 * time.Second // a test that leaves a request open should not wait for it
	for _, o := range options {
		o(&config)
	}
	return config
}

// launch starts a cluster and returns when it is ready, or when ctx ends before that. It calls ended if the cluster ends by itself later.
func launch(ctx context.Context, config run.Config, log *slog.Logger, ended func(error)) (*Cluster, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ready, failed := make(chan *run.Server, 1), make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		isReady := false
		err := run.Serve(life, config, log, func(s *run.Server) { isReady = true; ready <- s })
		switch {
		case !isReady:
			failed <- err
		case err != nil && life.Err() == nil:
			ended(err)
		}
	})
	c := &Cluster{Dir: config.DataDir, stop: sync.OnceFunc(func() { cancel(); wg.Wait() })}
	var err error
	select {
	case c.Server = <-ready:
		err = c.connect(config.InProcess)
	case err = <-failed:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// connect sets the clients of the cluster; with alone, only the one inside the process.
func (c *Cluster) connect(alone bool) (err error) {
	c.Kubeconfig = c.Server.Kubeconfig()
	c.Client = c.Server.Client(admin())
	if alone {
		return nil
	}
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return err
	}
	c.Config.QPS, c.Config.Burst = -1, 0
	return nil
}

// admin returns the user of Client and the kubeconfig.
func admin() user.Info {
	return &user.DefaultInfo{Name: "kubernetes-admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
}

// Stop ends the cluster before the test does.
func (c *Cluster) Stop() { c.stop() }
