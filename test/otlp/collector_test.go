package otlp

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"proa.dev/test/ports"
	"proa.dev/test/upstream"
	"proa.dev/trace/otlp"
	"proa.dev/trace/otlp/otlptest"
)

// collector is a running OpenTelemetry Collector that writes what it receives to a file.
type collector struct {
	t    *testing.T
	url  string
	file string
	cmd  *exec.Cmd
	log  bytes.Buffer
	done chan error
}

// program finds the collector. To build it takes minutes, so that is done only where PROA_OTLP is set, as make otlp does.
func program(t *testing.T) string {
	t.Helper()
	const name = "otelcol"
	find := upstream.Find
	if os.Getenv("PROA_OTLP") != "" {
		find = func(names ...string) (map[string]string, error) { return upstream.Build(t.Context(), names...) }
	}
	bins, err := find(name)
	if err != nil {
		if os.Getenv("PROA_OTLP") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return bins[name]
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	dir, address := t.TempDir(), ports.Address(t)
	c := &collector{t: t, url: "http://" + address, file: filepath.Join(dir, "traces.jsonl"), done: make(chan error, 1)}
	config := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf(`
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {lines: {path: %q}}
service:
  telemetry: {metrics: {level: none}, logs: {level: warn}}
  pipelines: {traces: {receivers: [otlp], exporters: [lines]}}
`, address, c.file)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c.cmd = exec.CommandContext(t.Context(), program(t), "--config", config)
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.done <- c.cmd.Wait() }()
	until(t, "the collector listens", func() bool {
		select {
		case err := <-c.done:
			t.Fatalf("the collector has ended: %v\n%s", err, c.log.String())
		default:
		}
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return c
}

// stop ends the collector, and returns the spans that it has understood.
func (c *collector) stop() []otlptest.Span {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	if err := <-c.done; err != nil {
		c.t.Errorf("the collector has ended with %v\n%s", err, c.log.String())
	}
	text, err := os.ReadFile(c.file)
	if err != nil {
		c.t.Fatal(err)
	}
	var out []otlptest.Span
	for line := range bytes.Lines(text) {
		spans, err := otlptest.Decode(line)
		if err != nil {
			c.t.Fatalf("what the collector wrote: %v", err)
		}
		out = append(out, spans...)
	}
	return out
}

// TestCollector runs a cluster that exports to the OpenTelemetry Collector, and looks at what the collector has understood. The trace that
// a user downloads is sent there too, as proa trace --otlp does.
func TestCollector(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	e := exportDeployment(t, c.url)
	marked := *e.trace
	marked.Spans = slices.Clone(e.trace.Spans)
	marked.Spans[0].Detail = "sent by a user"
	if err := otlp.Send(t.Context(), c.url, &marked); err != nil {
		t.Errorf("send one trace: %v", err)
	}
	var spans, users []otlptest.Span
	isMarked := false
	for _, s := range c.stop() {
		if isMarked = isMarked || s.Tags["proa.detail"] == "sent by a user"; isMarked {
			users = append(users, s)
		} else {
			spans = append(spans, s)
		}
	}
	e.check(t, spans)
	e.check(t, users)
	if len(users) != len(e.trace.Spans) {
		t.Errorf("%d spans of one trace arrived, want %d", len(users), len(e.trace.Spans))
	}
}
