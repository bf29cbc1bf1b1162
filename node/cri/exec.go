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

	"proa.dev/node/exectree"
)

// execNet is how much later than the command's own time the runtime ends it, where nobody else could.
const execNet = 5 * time.Second

// ExecSync runs a command in a container and waits for it. The error is nil if the command ran, whatever its code. A command that takes
// longer than timeout is killed with all that it has started; TimedOut tells that from the error.
func (c *Client) ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (out []byte, code int, err error) {
	request := &runtimev1.ExecSyncRequest{ContainerId: id, Cmd: command}
	var late atomic.Bool
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout+2*execNet)
		defer cancel()
		request.Timeout = int64((timeout + execNet + time.Second - 1) / time.Second)
		begin := time.Now()
		clock := time.AfterFunc(timeout, func() {
			late.Store(true)
			if c.killExec(ctx, id, command, begin) != nil {
				cancel() // then the runtime kills at least the first process
			}
		})
		defer clock.Stop()
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

// lateStart is how long a command that has no time left is looked for. A busy runtime may begin it only now, and what it starts then must end too.
const lateStart = 2 * time.Second

// killExec kills a command with all that it has started. It gives up when the runtime says that the command has ended, which ends ctx.
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
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// pid is the number of a container's first process.
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
