package probe

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/container"
	"proa.dev/node/cri"
)

// maxOutput is how much of a container's output is read.
const maxOutput = 10 << 10

// result is the result of a probe.
type result string

const (
	success result = "success"
	warning result = "warning" // a success with a warning
	failure result = "failure"
	unknown result = "unknown"
)

// outcome is the result of a probe with its output.
type outcome struct {
	result result
	text   string
}

func (o outcome) good() bool { return o.result == success || o.result == warning }

func failed(format string, args ...any) outcome {
	return outcome{failure, fmt.Sprintf(format, args...)}
}

// target is the container that is probed.
type target struct {
	pod       *corev1.Pod
	container *corev1.Container
	id, ip    string
}

// probeOnce runs a probe once. An error means that the probe could not be run, which says nothing about the container.
func (b *Prober) probeOnce(ctx context.Context, p *corev1.Probe, t target) (outcome, error) {
	timeout := time.Duration(p.TimeoutSeconds) * time.Second
	switch {
	case p.Exec != nil:
		command, err := expand(p.Exec.Command, t.container.Env)
		if err != nil {
			return outcome{result: unknown}, err
		}
		return b.exec(ctx, command, t.id, timeout)
	case p.HTTPGet != nil:
		return b.http.get(ctx, p.HTTPGet, t, timeout)
	case p.TCPSocket != nil:
		port, err := Port(p.TCPSocket.Port, t.container)
		if err != nil {
			return outcome{result: unknown}, err
		}
		return connect(ctx, cmp.Or(p.TCPSocket.Host, t.ip), port, timeout), nil
	case p.GRPC != nil:
		return health(ctx, p.GRPC, t.ip, timeout), nil
	}
	return outcome{result: unknown}, fmt.Errorf("missing probe handler for %s_%s(%s):%s", t.pod.Name, t.pod.Namespace, t.pod.UID,
		t.container.Name)
}

func (b *Prober) exec(ctx context.Context, command []string, id string, timeout time.Duration) (outcome, error) {
	out, code, err := b.Runner.ExecSync(ctx, id, command, timeout)
	switch {
	case err != nil && cri.TimedOut(err):
		return failed("command timed out: %q timed out after %s", strings.Join(command, " "), timeout), nil
	case err != nil:
		return outcome{result: unknown}, err
	}
	text := string(out[:min(len(out), maxOutput)])
	if code != 0 {
		return outcome{failure, text}, nil
	}
	return outcome{success, text}, nil
}

// expand replaces $(NAME) in a command by the value that the container's spec itself gives a variable; $$ stands for
// one $. Other references stay as they are: values from ConfigMaps and the like are not known to probes.
func expand(command []string, env []corev1.EnvVar) ([]string, error) {
	values := map[string]string{}
	for _, e := range env {
		values[e.Name] = e.Value
	}
	value := func(name string) string {
		if v, ok := values[name]; ok {
			return v
		}
		return "$(" + name + ")"
	}
	out, room := make([]string, len(command)), container.MaxArguments
	for i, word := range command {
		var err error
		if out[i], err = container.Expand(word, value, room); err != nil {
			return nil, fmt.Errorf("the probe's argument %.100q: %w", word, err)
		}
		room -= len(out[i])
	}
	return out, nil
}
