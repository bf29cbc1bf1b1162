package otlp

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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
	url  string // of OTLP/HTTP
	grpc string // of OTLP/gRPC
	file string
	read int // how many bytes of it spans leaves out
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
	dir, address, second := t.TempDir(), ports.Address(t), ports.Address(t)
	c := &collector{t: t, url: "http://" + address, grpc: "grpc://" + second, file: filepath.Join(dir, "traces.jsonl")}
	c.done = make(chan error, 1)
	config := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf(`
receivers: {otlp: {protocols: {http: {endpoint: %q}, grpc: {endpoint: %q}}}}
exporters: {lines: {path: %q}}
service:
  telemetry: {metrics: {level: none}, logs: {level: warn}}
  pipelines: {traces: {receivers: [otlp], exporters: [lines]}}
`, address, second, c.file)
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

// spans returns the spans that the collector has understood since the last call of forget.
func (c *collector) spans() (out []otlptest.Span) {
	c.t.Helper()
	for line := range bytes.Lines(c.written()) {
		spans, err := otlptest.Decode(line)
		if err != nil {
			c.t.Fatalf("what the collector wrote: %v", err)
		}
		out = append(out, spans...)
	}
	return out
}

// forget leaves out of later calls of spans what has arrived by now.
func (c *collector) forget() {
	c.t.Helper()
	c.read += len(c.written())
}

// written returns the whole lines of the collector's file since the last call of forget. It may be writing another one.
func (c *collector) written() []byte {
	c.t.Helper()
	text, err := os.ReadFile(c.file)
	if err != nil {
		c.t.Fatal(err)
	}
	return text[c.read : bytes.LastIndexByte(text, '\n')+1]
}

// stop ends the collector.
func (c *collector) stop() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatal(err)
	}
	if err := <-c.done; err != nil {
		c.t.Errorf("the collector has ended with %v\n%s", err, c.log.String())
	}
}

// TestCollector runs a cluster that exports to the OpenTelemetry Collector, and looks at what the collector has understood. The trace that
// a user downloads is sent there too, as proa trace --otlp does.
func TestCollector(t *testing.T) {
	t.Parallel()
	c := startCollector(t)
	for name, to := range map[string][2]otlp.Endpoint{
		"exported by HTTP, sent by gRPC":             {{URL: c.url}, {URL: c.grpc}},
		"exported by gRPC, sent by HTTP":             {{URL: c.grpc}, {URL: c.url}},
		"exported by HTTP, sent by gRPC, compressed": {{URL: c.url, Gzip: true}, {URL: c.grpc, Gzip: true}},
		"exported by gRPC, sent by HTTP, compressed": {{URL: c.grpc, Gzip: true}, {URL: c.url, Gzip: true}},
	} {
		t.Run(name, func(t *testing.T) {
			e := exportDeployment(t, to[0], c.spans)
			e.check(t, c.spans())
			c.forget()
			if err := otlp.SendTo(t.Context(), to[1], e.trace); err != nil {
				t.Errorf("send one trace: %v", err)
			}
			sent := c.spans()
			e.check(t, sent)
			c.forget()
			if len(sent) != len(e.trace.Spans) {
				t.Errorf("%d spans of one trace arrived, want %d", len(sent), len(e.trace.Spans))
			}
		})
	}
	c.stop()
}
