package crash

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"proa.dev/test/ports"
)

// binary is the proa under test.
var binary string

// TestMain builds proa once, unless PROA_BIN is set to one.
func TestMain(m *testing.M) { os.Exit(withBinary(m)) }

func withBinary(m *testing.M) int {
	if binary = os.Getenv("PROA_BIN"); binary != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "proa-crash-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "proa")
	build := exec.Command("go", "build", "-tags", "grpcnotrace", "-o", binary, "proa.dev/cmd/proa")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build proa: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// cluster is a data folder and an address, and the server process that currently uses them.
type cluster struct {
	*testing.T
	dir, addr string
	args      []string // further arguments of the server
	program   string   // takes the place of the proa under test; empty for that
	base      string
	tls       *tls.Config
	process   *exec.Cmd
	output    *bytes.Buffer
	starts    []time.Duration
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{T: t, dir: t.TempDir(), addr: ports.Address(t)}
	t.Cleanup(func() {
		c.kill()
		if t.Failed() {
			t.Logf("the last server printed:\n%s", tail(c.output.String()))
		}
	})
	return c
}

// tail returns the end of a log, without the many lines in which etcd's client reports that it tries again.
func tail(log string) string {
	var out strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, `msg="etcd reports"`) {
			out.WriteString(line)
		}
	}
	return out.String()[max(0, out.Len()-20000):]
}

// start starts the server and waits until it is ready.
func (c *cluster) start() {
	c.Helper()
	began := time.Now()
	c.launch()
	c.untilReady(began)
}

// launch starts the server.
func (c *cluster) launch() {
	c.Helper()
	c.output = &bytes.Buffer{}
	c.process = exec.Command(cmp.Or(c.program, binary), append([]string{"server", "--data-dir", c.dir, "--listen", c.addr}, c.args...)...)
	c.process.Stdout, c.process.Stderr = c.output, c.output
	if err := c.process.Start(); err != nil {
		c.Fatal(err)
	}
}

// untilReady waits until the server is ready that was started at a time.
func (c *cluster) untilReady(began time.Time) {
	c.Helper()
	for {
		if err := c.ready(); err == nil {
			break
		} else if time.Since(began) > time.Minute {
			c.Fatalf("the server is not ready after a minute: %v", err)
		}
		time.Sleep(10 * time.Millisecond) // another process can only be polled
	}
	c.starts = append(c.starts, time.Since(began))
}

func (c *cluster) ready() error {
	if c.tls == nil {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(c.dir, "admin.kubeconfig"))
		if err != nil {
			return err
		}
		if c.tls, err = rest.TLSConfigFor(config); err != nil {
			return err
		}
		c.base = config.Host
	}
	client := c.client()
	defer client.CloseIdleConnections()
	ctx, stop := context.WithTimeout(c.Context(), 5*time.Second)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz: %s", res.Status)
	}
	return nil
}

// client returns a client that does not share connections.
func (c *cluster) client() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: c.tls.Clone(), ForceAttemptHTTP2: true}}
}

// kill ends the server with SIGKILL, and waits until it has ended.
func (c *cluster) kill() {
	if c.process == nil {
		return
	}
	_ = c.process.Process.Kill()
	_ = c.process.Wait() // it reports the kill
	c.process = nil
}
