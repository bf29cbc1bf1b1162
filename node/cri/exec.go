package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"proa.dev/internal/wait"
	"proa.dev/node/exectree"
)

// execNet is how much later than the timeout of a command the runtime ends it, in case killExec cannot.
const execNet = 5 * time.Second

// ExecSync runs a command in a container and waits for it. The error is nil if the command ran, whatever its exit code.
// A command that exceeds timeout is killed with all its child processes, and TimedOut reports true for the error.
func (c *Client) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (out []byte, code int, err error) {
	request := &runtimev1.ExecSyncRequest{ContainerId: id, Cmd: command}
	var late atomic.Bool
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout+2*execNet)
		defer cancel()
		request.Timeout = int64((timeout + execNet + time.Second - 1) / time.Second)
		begin := time.Now()
		timer := time.AfterFunc(timeout, func() {
			late.Store(true)
			if c.killExec(ctx, id, command, begin) != nil {
				cancel() // then the runtime kills at least the first process
			}
		})
		defer timer.Stop()
	}
	r, err := c.RuntimeServiceClient.ExecSync(ctx, request)
	switch {
	case late.Load():
		return nil, 0, status.Errorf(codes.DeadlineExceeded, "the command took longer than %s", timeout)
	case err != nil:
		return nil, 0, err
	}
	return append(r.Stdout, r.Stderr...), int(r.ExitCode), nil
}

// lateStart is how long a command is looked for after its timeout. A busy runtime may start it only then, and its
// processes must be killed too.
const lateStart = 2 * time.Second

// killExec kills a command with all its child processes. It gives up when ctx ends, because the command has ended.
func (c *Client) killExec(ctx context.Context, id string, command []string, begin time.Time) error {
	first, err := c.pid(ctx, id)
	if err != nil {
		return err
	}
	for until := time.Now().Add(lateStart); ; {
		err := exectree.Kill(exectree.Command{Init: first, Args: command, Age: time.Since(begin)})
		if !errors.Is(err, exectree.ErrNotFound) || time.Now().After(until) {
			return err
		}
		if err := wait.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// pid returns the process id of a container's first process.
func (c *Client) pid(ctx context.Context, id string) (int, error) {
	r, err := c.ContainerStatus(ctx, &runtimev1.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return 0, err
	}
	var info struct {
		Pid int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(r.Info["info"]), &info); err != nil {
		return 0, fmt.Errorf("read what the runtime tells of container %s: %w", id, err)
	}
	if info.Pid <= 0 {
		return 0, fmt.Errorf("the runtime does not tell the process of container %s", id)
	}
	return info.Pid, nil
}
