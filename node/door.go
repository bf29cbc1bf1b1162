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

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/node/cri"
	"proa.dev/node/fact"
	"proa.dev/node/logs"
	"proa.dev/node/nodestatus"
	"proa.dev/node/serve"
)

// listen opens the agent's port. Where it is taken, by the node of another cluster perhaps, any other one does: whoever
// wants to reach the agent reads its port from the Node.
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

// openDoor makes the server of the agent.
func (a *Agent) openDoor() (err error) {
	if a.notify, err = logs.NewNotify(); err != nil {
		return err
	}
	a.cert = &nodestatus.Certificate{
		File: filepath.Join(a.Dir, "pki", "serving.pem"), Issue: a.Issue, Log: a.Log, Former: a.ClientCAs,
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
	a.server = serve.New(serve.Config{
		Node: a.Name, Pods: a.pods, Runtime: a.cri, Notify: a.notify, Client: a.Client, ClientCAs: a.ClientCAs, Settings: a.settings,
		HostLogs: "/var/log", Others: a.stats.Handlers(a.allNumbers(), a.prober.Numbers()), Log: a.Log,
	})
	return nil
}

// allNumbers are the agent's own, and those that it was given.
func (a *Agent) allNumbers() prometheus.Gatherer {
	out := a.stats.Agent()
	if a.Numbers != nil {
		out.MustRegister(a.Numbers)
	}
	return out
}

// Inside serves a caller in the same process, who must be the API server.
func (a *Agent) Inside(name string, groups []string) http.Handler {
	return a.server.Inside(serve.Identity{Username: name, Groups: groups})
}

// writing is what the rotation of logs needs to know.
type writing struct{ *Agent }

// Logs are those of the containers that run.
func (w writing) Logs(context.Context) (out []logs.Log, err error) {
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

// Reopen makes the runtime write to a new file.
func (w writing) Reopen(ctx context.Context, id string) error {
	_, err := w.cri.ReopenContainerLog(ctx, &cri.ReopenContainerLogRequest{ContainerId: id})
	return err
}
