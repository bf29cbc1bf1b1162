package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"proa.dev/internal/connlimit"
	"proa.dev/node"
	"proa.dev/node/shutdown"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/machine/teardown"
)

// control accepts commands at the agent's socket until ctx ends.
func (p *agentHost) control(ctx context.Context, agent *node.Agent) error {
	file := nodefolder.ControlSocket(p.dataDir)
	if err := os.MkdirAll(filepath.Dir(file), 0o711); err != nil { //nolint:gosec // G301: processes of Pods pass through it, see runtime
		return fmt.Errorf("make the folder of the agent's socket: %w", err)
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove an old socket: %w", err)
	}
	listener, err := net.Listen("unix", file)
	if err != nil {
		return fmt.Errorf("listen for commands: %w", err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		return errors.Join(err, listener.Close())
	}
	routes := http.NewServeMux()
	routes.HandleFunc("POST /stop", func(w http.ResponseWriter, r *http.Request) { stopPods(ctx, agent, w, r) })
	if p.leave != nil {
		routes.HandleFunc("POST /leave", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			p.leave()
		})
	}
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(p.connections.Listener(listener, "control", connlimit.Local)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// stopPods stops the Pods of the agent, and reports the progress. They stay stopped as long as the caller keeps the
// request open; if it closes the request and the agent goes on, they start again.
func stopPods(life context.Context, agent *node.Agent, w http.ResponseWriter, r *http.Request) {
	limit, err := time.ParseDuration(r.URL.Query().Get("limit"))
	if err != nil || limit < 0 {
		http.Error(w, "limit is not a duration", http.StatusBadRequest)
		return
	}
	var last []byte
	say := func(a teardown.StopAnswer) {
		line, err := json.Marshal(a)
		if err != nil || bytes.Equal(line, last) {
			return
		}
		last = line
		_, _ = w.Write(append(line, '\n')) // if the caller is gone, the request's context ends
		_ = http.NewResponseController(w).Flush()
	}
	left, err := agent.Stop(r.Context(), limit, func(p shutdown.Progress) { say(teardown.StopAnswer{Progress: p}) })
	if err != nil {
		say(teardown.StopAnswer{Error: err.Error()})
		return
	}
	say(teardown.StopAnswer{Progress: shutdown.Progress{Left: left}, Done: true})
	select {
	case <-life.Done():
	case <-r.Context().Done():
		if life.Err() == nil {
			agent.Resume()
		}
	}
}
