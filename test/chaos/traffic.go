package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"proa.dev/test/lab"
)

// Lane has the counts of a client for one URL over either kept or new connections.
type Lane struct {
	URL    string         `json:"url"`
	New    bool           `json:"new"`
	Sent   int            `json:"sent"`
	Failed int            `json:"failed"`
	Errors map[string]int `json:"errors"`
	P50    float64        `json:"p50"`
	P99    float64        `json:"p99"`
	Max    float64        `json:"max"`
	Rate   float64        `json:"rate"`
}

// Failure is one request that failed.
type Failure struct {
	At    time.Time `json:"at"`
	Took  float64   `json:"took"` // milliseconds
	URL   string    `json:"url"`
	New   bool      `json:"new"`
	Error string    `json:"error"`
	From  string    `json:"from"`
}

// End returns when the request failed.
func (f Failure) End() time.Time { return f.At.Add(time.Duration(f.Took * float64(time.Millisecond))) }

// Client sends requests from one place.
type Client struct {
	From string

	report func(Failure)
	cmd    *exec.Cmd
	stdin  io.Closer
	read   sync.WaitGroup

	mu       sync.Mutex // guards what follows
	failures []Failure
	lanes    []Lane
	stderr   strings.Builder
}

// place is a place where a client runs: command returns the command that runs the tool there.
type place struct {
	name    string
	report  func(Failure)
	command func(ctx context.Context, args []string) *exec.Cmd
}

// onNode returns the place of a client on the machine itself, which is the first node.
func (c *Cluster) onNode() place {
	return place{"node", c.Failed, func(ctx context.Context, args []string) *exec.Cmd { return exec.CommandContext(ctx, c.Tool, args...) }}
}

// from returns the place of a client in the network outside the cluster.
func (c *Cluster) from(outside *lab.Net) place {
	return place{"outside", c.Failed, func(ctx context.Context, args []string) *exec.Cmd { return outside.Command(ctx, c.Tool, args...) }}
}

// inPod returns the place of a client in a container.
func (c *Cluster) inPod(name, namespace, pod string) place {
	return place{name, c.Failed, func(ctx context.Context, args []string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, c.Kubectl, append([]string{"exec", "-i", "-n", namespace, pod, "--", "/tool"}, args...)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
		return cmd
	}}
}

// start begins to send requests. They end with stop.
func (p place) start(ctx context.Context, rate float64, host string, urls ...string) (*Client, error) {
	// A machine that is busy with other things may keep a client from running for seconds; that is no failure of a request.
	return p.startWith(ctx, rate, []string{"-host", host, "-timeout", "15s"}, urls...)
}

func (p place) startWith(ctx context.Context, rate float64, flags []string, urls ...string) (*Client, error) {
	args := append([]string{"load", "-until-eof", "-rate", fmt.Sprint(rate)}, flags...)
	client := &Client{From: p.name, report: p.report, cmd: p.command(context.WithoutCancel(ctx), append(args, urls...))}
	stdin, err := client.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := client.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	client.stdin = stdin
	client.cmd.Stderr = &errorOutput{client: client}
	if err := client.cmd.Start(); err != nil {
		return nil, fmt.Errorf("traffic from %s: %w", p.name, err)
	}
	client.read.Go(func() { client.follow(stdout) })
	return client, nil
}

// errorOutput keeps the first lines that a program writes to its standard error.
type errorOutput struct{ client *Client }

func (g *errorOutput) Write(p []byte) (int, error) {
	g.client.mu.Lock()
	defer g.client.mu.Unlock()
	if g.client.stderr.Len() < 1<<16 {
		g.client.stderr.Write(p)
	}
	return len(p), nil
}

// follow reads the lines of the tool: one for each failure, and at the end one for each lane.
func (c *Client) follow(r io.Reader) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		var f Failure
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
			continue
		}
		c.mu.Lock()
		if !f.At.IsZero() {
			f.From = c.From
			c.failures = append(c.failures, f)
			if c.report != nil {
				c.report(f)
			}
		} else {
			var l Lane
			if json.Unmarshal(lines.Bytes(), &l) == nil {
				c.lanes = append(c.lanes, l)
			}
		}
		c.mu.Unlock()
	}
}

// Failures returns the failures so far.
func (c *Client) Failures() []Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.failures)
}

// stop ends the requests and waits for the last of them.
func (c *Client) stop() ([]Lane, error) {
	_ = c.stdin.Close()
	timer := time.AfterFunc(20*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	c.read.Wait()
	err := c.cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.lanes) == 0 {
		return nil, fmt.Errorf("the client %s has not said what it counted: %w: %s", c.From, err, c.stderr.String())
	}
	return c.lanes, nil // that requests failed is in the lanes
}

// Clients send requests from several places.
type Clients []*Client

// Failures returns the failures of all clients so far, in order of time.
func (all Clients) Failures() (out []Failure) {
	for _, c := range all {
		out = append(out, c.Failures()...)
	}
	slices.SortFunc(out, func(a, b Failure) int { return a.At.Compare(b.At) })
	return out
}

// Stop stops all clients and returns their totals.
func (all Clients) Stop() ([]Total, error) {
	var totals []Total
	var errs []error
	for _, c := range all {
		lanes, err := c.stop()
		errs = append(errs, err)
		for _, l := range lanes {
			totals = append(totals, Total{From: c.From, Lane: l})
		}
	}
	return totals, errors.Join(errs...)
}

// Total is a lane and the place of its client.
type Total struct {
	From string
	Lane
}

// Table formats totals as a Markdown table, with names for the URLs.
func Table(totals []Total, names map[string]string) string {
	var b strings.Builder
	b.WriteString("| from | to | connections | requests | failed | p50 ms | p99 ms | longest ms |\n|---|---|---|---|---|---|---|---|\n")
	sent, failed := 0, 0
	for _, t := range totals {
		to, connections := t.URL, "kept"
		if name, ok := names[t.URL]; ok {
			to = name
		}
		if t.New {
			connections = "new"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %.1f | %.1f | %.0f |\n", t.From, to, connections, t.Sent, t.Failed, t.P50, t.P99, t.Max)
		sent, failed = sent+t.Sent, failed+t.Failed
	}
	fmt.Fprintf(&b, "| all | | | %d | %d | | | |\n", sent, failed)
	return b.String()
}
