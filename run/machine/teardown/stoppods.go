package teardown

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"proa.dev/node/shutdown"
	"proa.dev/run/machine/nodefolder"
)

// StopAnswer is a line of an agent's answer while it stops its Pods.
type StopAnswer struct {
	shutdown.Progress
	// Done says that Left is all that still runs, and Error why nothing was stopped.
	Done  bool
	Error string
}

// Stopping holds the Pods of this machine's nodes stopped. They start again when it is closed while the agents still
// run.
type Stopping struct {
	// Stopped has the data folders of the nodes whose agents have stopped their Pods. Left names the Pods that did not stop in time.
	Stopped map[string]bool
	Left    []string

	cancel context.CancelFunc
	bodies []*http.Response
}

// Close ends the requests to the agents.
func (s *Stopping) Close() {
	if s.cancel != nil {
		s.cancel()
	}
	for _, b := range s.bodies {
		_ = b.Body.Close()
	}
}

// StopProgress is the progress of stopping Pods.
type StopProgress = shutdown.Progress

// StopPods asks the running agents of a data folder's nodes to stop their Pods, each within its grace period or limit
// if that is shorter, and returns when they have. It calls tell with the progress of all nodes together.
func StopPods(ctx context.Context, dataDir string, limit time.Duration, tell func(StopProgress)) (*Stopping, error) {
	all, err := nodefolder.Existing(dataDir)
	if err != nil {
		return nil, err
	}
	dirs := []string{dataDir}
	for _, f := range all {
		dirs = append(dirs, f.Dir)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Stopping{Stopped: map[string]bool{}, cancel: cancel}
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
				s.bodies, s.Stopped[dir] = append(s.bodies, body), true
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

// sum adds up the progress of nodes.
func sum(states []shutdown.Progress) (out shutdown.Progress) {
	for _, p := range states {
		out.Pods += p.Pods
		out.Left = append(out.Left, p.Left...)
		out.Longest = max(out.Longest, p.Longest)
	}
	return out
}

// askAgent sends a command to the agent of a data folder.
func askAgent(ctx context.Context, dataDir, path string) (*http.Response, error) {
	var d net.Dialer
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "unix", nodefolder.ControlSocket(dataDir))
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	return transport.RoundTrip(request)
}

// stopNode asks one agent to stop its Pods. The response is nil if the agent does not run, or has ended meanwhile.
func stopNode(ctx context.Context, dataDir string, limit time.Duration, tell func(shutdown.Progress)) (*http.Response, []string, error) {
	response, err := askAgent(ctx, dataDir, "/stop?limit="+limit.String())
	if err != nil {
		return nil, nil, ctx.Err() // no agent listens there, or it ended before it answered
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, nil, fmt.Errorf("the agent in %s does not stop its Pods: %s", dataDir, response.Status)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var a StopAnswer
		switch err := json.Unmarshal(lines.Bytes(), &a); {
		case err != nil:
			response.Body.Close()
			return nil, nil, fmt.Errorf("the answer of the agent in %s cannot be parsed: %w", dataDir, err)
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
