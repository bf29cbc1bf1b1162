package machine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"proa.dev/node"
	"proa.dev/node/runtime"
	"proa.dev/node/shutdown"
)

// controlSocket is where the agent of a data folder listens for commands of this machine's root, beside its runtime.
func controlSocket(dataDir string) string {
	return filepath.Join(filepath.Dir(runtime.Socket(runtimeDir(dataDir))), "agent.sock")
}

// answer is a line of what an agent says while it stops its Pods.
type answer struct {
	shutdown.Progress
	// Done says that Left is all that still runs; Error why nothing was stopped.
	Done  bool
	Error string
}

// control takes commands at the agent's socket until ctx ends.
func (p *place) control(ctx context.Context, agent *node.Agent) error {
	file := controlSocket(p.dataDir)
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
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// stopPods stops the Pods of the agent, and says how far that is. They stay stopped as long as the caller stays; when it goes and the
// agent does not, they start again.
func stopPods(life context.Context, agent *node.Agent, w http.ResponseWriter, r *http.Request) {
	limit, err := time.ParseDuration(r.URL.Query().Get("limit"))
	if err != nil || limit < 0 {
		http.Error(w, "limit is not a duration", http.StatusBadRequest)
		return
	}
	var last []byte
	say := func(a answer) {
		line, err := json.Marshal(a)
		if err != nil || bytes.Equal(line, last) {
			return
		}
		last = line
		_, _ = w.Write(append(line, '\n')) // a caller that has gone ends the request's context
		_ = http.NewResponseController(w).Flush()
	}
	left, err := agent.Stop(r.Context(), limit, func(p shutdown.Progress) { say(answer{Progress: p}) })
	if err != nil {
		say(answer{Error: err.Error()})
		return
	}
	say(answer{Progress: shutdown.Progress{Left: left}, Done: true})
	select {
	case <-life.Done():
	case <-r.Context().Done():
		if life.Err() == nil {
			agent.Resume()
		}
	}
}

// Stopping is the Pods of this machine's nodes, stopped. They start again when it is closed while the agents still run.
type Stopping struct {
	// Nodes is how many agents were asked, Left names the Pods that did not stop in time.
	Nodes int
	Left  []string

	cancel context.CancelFunc
	bodies []*http.Response
}

// Close lets go of the agents.
func (s *Stopping) Close() {
	if s.cancel != nil {
		s.cancel()
	}
	for _, b := range s.bodies {
		_ = b.Body.Close()
	}
}

// StopProgress is how far the stop of Pods is.
type StopProgress = shutdown.Progress

// StopPods asks the agents of a data folder's nodes that run to stop their Pods, each within its grace period or limit if that is
// shorter, and returns when they have. tell hears how far it is, all nodes together.
func StopPods(ctx context.Context, dataDir string, limit time.Duration, tell func(StopProgress)) (*Stopping, error) {
	all, err := existing(dataDir)
	if err != nil {
		return nil, err
	}
	dirs := []string{dataDir}
	for _, f := range all {
		dirs = append(dirs, f.dir)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Stopping{cancel: cancel}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	states := make([]shutdown.Progress, len(dirs))
	for i, dir := range dirs {
		wg.Go(func() {
			body, left, err := stopNode(ctx, dir, limit, func(p shutdown.Progress) {
				mu.Lock()
				defer mu.Unlock()
				states[i] = p
				tell(sum(states))
			})
			mu.Lock()
			defer mu.Unlock()
			if body != nil {
				s.bodies, s.Nodes = append(s.bodies, body), s.Nodes+1
			}
			s.Left, errs = append(s.Left, left...), append(errs, err)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// sum puts the states of nodes together.
func sum(states []shutdown.Progress) (out shutdown.Progress) {
	for _, p := range states {
		out.Pods += p.Pods
		out.Left = append(out.Left, p.Left...)
		out.Longest = max(out.Longest, p.Longest)
	}
	return out
}

// stopNode asks one agent; nil if it does not run, or has ended meanwhile.
func stopNode(ctx context.Context, dataDir string, limit time.Duration, tell func(shutdown.Progress)) (*http.Response, []string, error) {
	socket := controlSocket(dataDir)
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, nil, ctx.Err() // nobody listens: there is no agent
	}
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent/stop?limit="+limit.String(), http.NoBody)
	if err != nil {
		return nil, nil, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, nil, ctx.Err() // the agent ended before it answered
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, nil, fmt.Errorf("the agent in %s does not stop its Pods: %s", dataDir, response.Status)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var a answer
		switch err := json.Unmarshal(lines.Bytes(), &a); {
		case err != nil:
			response.Body.Close()
			return nil, nil, fmt.Errorf("the agent in %s answers what nobody understands: %w", dataDir, err)
		case a.Error != "":
			response.Body.Close()
			return nil, nil, fmt.Errorf("the Pods in %s were not stopped, and go on: %s", dataDir, a.Error)
		case a.Done:
			return response, a.Left, nil
		}
		tell(a.Progress)
	}
	response.Body.Close()
	return nil, nil, ctx.Err() // the agent was killed; what it has recorded and not stopped is stopped without it
}
