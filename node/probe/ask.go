package probe

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/cri"
)

// maxOutput is how much of what a container says is looked at.
const maxOutput = 10 << 10

// result is what came of asking.
type result string

const (
	success result = "success"
	warning result = "warning" // a success that is worth a word
	failure result = "failure"
	unknown result = "unknown"
)

// outcome is an answer with what was said.
type outcome struct {
	result result
	text   string
}

func (o outcome) good() bool { return o.result == success || o.result == warning }

func failed(format string, args ...any) outcome {
	return outcome{failure, fmt.Sprintf(format, args...)}
}

// target is the container that is asked.
type target struct {
	pod       *corev1.Pod
	container *corev1.Container
	id, ip    string
}

// ask asks once. An error means that the container could not be asked, which says nothing about it.
func (b *Prober) ask(ctx context.Context, p *corev1.Probe, t target) (outcome, error) {
	timeout := time.Duration(p.TimeoutSeconds) * time.Second
	switch {
	case p.Exec != nil:
		return b.exec(ctx, expand(p.Exec.Command, t.container.Env), t.id, timeout)
	case p.HTTPGet != nil:
		return b.web.get(ctx, p.HTTPGet, t, timeout)
	case p.TCPSocket != nil:
		port, err := Port(p.TCPSocket.Port, t.container)
		if err != nil {
			return outcome{result: unknown}, err
		}
		return connect(ctx, first(p.TCPSocket.Host, t.ip), port, timeout), nil
	case p.GRPC != nil:
		return health(ctx, p.GRPC, t.ip, timeout), nil
	}
	return outcome{result: unknown}, fmt.Errorf("missing probe handler for %s_%s(%s):%s", t.pod.Name, t.pod.Namespace, t.pod.UID, t.container.Name)
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
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

// expand replaces $(NAME) in a command by what the container's spec itself gives a variable; $$ stands for one $. What the spec
// does not give stays as it is written. Values from elsewhere are not known to probes.
func expand(command []string, env []corev1.EnvVar) []string {
	values := map[string]string{}
	for _, e := range env {
		values[e.Name] = e.Value
	}
	out := make([]string, len(command))
	for i, word := range command {
		out[i] = substitute(word, values)
	}
	return out
}

func substitute(s string, values map[string]string) string {
	var b strings.Builder
	for {
		at := strings.IndexByte(s, '$')
		if at < 0 || at == len(s)-1 {
			return b.String() + s
		}
		b.WriteString(s[:at])
		rest := s[at+1:]
		end := strings.IndexByte(rest, ')')
		switch {
		case rest[0] == '$':
			b.WriteByte('$')
			s = rest[1:]
		case rest[0] == '(' && end > 0:
			if v, ok := values[rest[1:end]]; ok {
				b.WriteString(v)
			} else {
				b.WriteString("$" + rest[:end+1])
			}
			s = rest[end+1:]
		default:
			b.WriteByte('$')
			s = rest
		}
	}
}
