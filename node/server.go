package node

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"syscall"

	"proa.dev/node/cri"
	"proa.dev/node/fact"
	"proa.dev/node/kubeletapi"
	"proa.dev/node/logs"
	"proa.dev/node/nodestatus"
)

// listen opens the agent's port. If another process has it, such as the node of another cluster, any free port is used:
// clients read the agent's port from the Node object.
func (a *Agent) listen() (err error) {
	a.listener, err = net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(int(a.Port))))
	if errors.Is(err, syscall.EADDRINUSE) {
		a.Log.Warn("the agent's port is taken; it takes another", "port", a.Port)
		a.listener, err = net.Listen("tcp", ":0") //nolint:gosec // G102: servers come by any address of the node, and show who they are
	}
	if err != nil {
		return fmt.Errorf("open the agent's port: %w", err)
	}
	a.Port = int32(a.listener.Addr().(*net.TCPAddr).Port)
	return nil
}

// serveKubeletAPI serves the agent's port until ctx ends. When it is called again, it opens the port again.
func (a *Agent) serveKubeletAPI(ctx context.Context) error {
	if a.listener == nil {
		var err error
		if a.listener, err = net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(int(a.Port)))); err != nil {
			return fmt.Errorf("open the agent's port again: %w", err)
		}
	}
	l := a.listener
	a.listener = nil
	return a.server.Listen(ctx, l, a.cert.Serve)
}

// openServer makes the kubelet API server of the agent and its serving certificate.
func (a *Agent) openServer() (err error) {
	if a.notify, err = logs.NewNotify(); err != nil {
		return err
	}
	a.cert = &nodestatus.Certificate{
		File: filepath.Join(a.Dir, "pki", "serving.pem"), Issue: a.Issue, Log: a.Log, FormerCAs: a.ClientCAs,
		Wanted: func() *x509.CertificateRequest {
			n := a.node.Current()
			if n == nil {
				return nil
			}
			return nodestatus.ServingRequest(a.Name, n.Status.Addresses)
		},
	}
	if err := a.cert.Load(); err != nil {
		return err
	}
	a.server = kubeletapi.New(kubeletapi.Config{
		Node: a.Name, Pods: a.pods, Runtime: a.cri, Notify: a.notify, Client: a.Client, ClientCAs: a.ClientCAs,
		Settings: a.kubeletConfiguration,
		HostLogs: "/var/log", Handlers: a.stats.Handlers(a.metrics(), a.prober.Metrics()), Metrics: a.counts,
		Connections: a.Connections, Log: a.Log,
	})
	return nil
}

// InProcessHandler returns the kubelet API for a caller in the same process, which is authenticated as the given user. That must
// be the API server.
func (a *Agent) InProcessHandler(name string, groups []string) http.Handler {
	return a.server.InProcess(kubeletapi.Identity{Username: name, Groups: groups})
}

// containerLogs tells the log rotation which logs are being written.
type containerLogs struct{ *Agent }

// Logs returns the logs of the running containers.
func (w containerLogs) Logs(context.Context) (out []logs.Log, err error) {
	for _, p := range w.pods.Pods() {
		if p.Facts == nil {
			continue
		}
		for i := range p.Facts.Containers {
			if c := &p.Facts.Containers[i]; c.State == fact.Running && c.LogPath != "" {
				out = append(out, logs.Log{Path: c.LogPath, ID: c.ID})
			}
		}
	}
	return out, nil
}

// Reopen makes the runtime write to a new log file.
func (w containerLogs) Reopen(ctx context.Context, id string) error {
	_, err := w.cri.ReopenContainerLog(ctx, &cri.ReopenContainerLogRequest{ContainerId: id})
	return err
}
