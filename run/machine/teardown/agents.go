package teardown

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"proa.dev/internal/wait"
	"proa.dev/node/subprocess"
	"proa.dev/run/datafolder"
	"proa.dev/run/machine/nodefolder"
)

// LockHolder returns the process that has locked a data folder, see datafolder.Lock; nil if there is none.
func LockHolder(dir string) (*subprocess.Process, error) {
	pid, err := datafolder.LockHolder(dir)
	if err != nil || pid == 0 {
		return nil, err
	}
	p, err := subprocess.Hold(pid)
	if err != nil || p == nil {
		return nil, err
	}
	// Check again now that the process is held: its ID may have been reused in between.
	if now, err := datafolder.LockHolder(dir); err != nil || now != pid {
		p.Release()
		return nil, err
	}
	return p, nil
}

// StopAgent ends the agent of a node, if it runs.
func StopAgent(ctx context.Context, f nodefolder.Node) (stopped bool, err error) {
	return stopLockHolder(ctx, f.LockDir())
}

// stopLockHolder ends the process that has locked a folder, if there is one.
func stopLockHolder(ctx context.Context, dir string) (stopped bool, err error) {
	p, err := LockHolder(dir)
	if err != nil || p == nil {
		return false, err
	}
	defer p.Release()
	return true, p.Terminate(ctx, AgentStopTimeout)
}

// LeaveNode asks the agent of the first node to leave the node to another agent, and to go on serving Ingresses until that one does. It
// reports false if the agent does not leave in time.
func LeaveNode(ctx context.Context, f nodefolder.Node) bool {
	ctx, stop := context.WithTimeout(ctx, AgentStopTimeout)
	defer stop()
	response, err := askAgent(ctx, f.Dir, "/leave")
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	for response.StatusCode == http.StatusAccepted {
		if pid, err := datafolder.LockHolder(f.LockDir()); err == nil && pid == 0 {
			return true
		}
		if wait.Sleep(ctx, 5*time.Millisecond) != nil {
			break
		}
	}
	return false
}

// StopAgents ends the agents of a data folder, which go on when their server ends, and returns how many ran.
func StopAgents(ctx context.Context, dataDir string) (stopped int, err error) {
	all, err := nodefolder.Existing(dataDir)
	all = append(all, nodefolder.First(dataDir, ""))
	var wg sync.WaitGroup
	ran, errs := make([]bool, len(all)), make([]error, len(all)+1)
	wg.Go(func() { _, errs[len(all)] = stopLockHolder(ctx, nodefolder.LeavingDir(dataDir)) })
	for i, f := range all {
		wg.Go(func() { ran[i], errs[i] = StopAgent(ctx, f) })
	}
	wg.Wait()
	for _, r := range ran {
		if r {
			stopped++
		}
	}
	return stopped, errors.Join(append(errs, err)...)
}

// AgentStopTimeout is how long an agent may take to end.
const AgentStopTimeout = 10 * time.Second
