package teardown

import (
	"context"
	"errors"
	"time"

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
	p, err := LockHolder(f.Dir)
	if err != nil || p == nil {
		return false, err
	}
	defer p.Release()
	return true, p.Terminate(ctx, AgentStopTimeout)
}

// StopAgents ends the agents that a killed server has left running, and returns the names of their nodes.
func StopAgents(ctx context.Context, dataDir string) (names []string, err error) {
	all, err := nodefolder.Existing(dataDir)
	for _, f := range all {
		stopped, e := StopAgent(ctx, f)
		if stopped {
			names = append(names, f.Name)
		}
		err = errors.Join(err, e)
	}
	return names, err
}

// AgentStopTimeout is how long an agent may take to end.
const AgentStopTimeout = 10 * time.Second
