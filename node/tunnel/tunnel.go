// Package tunnel is the node's end of the tunnels by which API servers reach its agent and its Pods where no route leads there:
// the agent dials out, shows the certificate of its node, and from then on answers what the server asks over that connection. All
// that can be asked for is a connection to an address, and only to those of the node and of its Pods.
package tunnel

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"proa.dev/kinds/stream"
)

// Config is where servers are, and what they may ask for.
type Config struct {
	// Servers yields the addresses of all API servers, HOST:PORT, and again whenever they are others. It ends with the context
	// of Run.
	Servers iter.Seq[[]string]
	// TLS is as for requests to the API: it shows the certificate of the node.
	TLS *tls.Config
	// Own are the addresses of the node, and Pod says that an address is that of one of its Pods.
	Own func() []netip.Addr
	Pod func(netip.Addr) bool
	Log *slog.Logger
}

const (
	// patience is how long a server may take to open a tunnel, and an address of the node to answer.
	patience = 10 * time.Second
	// maxHead bounds what a server says before the tunnel is open.
	maxHead = 16 << 10
)

// Tunnels are those of a node, one to each server.
type Tunnels struct {
	Config
	// from tells this process from those before it.
	from string
	// idle is how long nothing may go over a connection.
	idle time.Duration
	// dial opens the tunnel to a server.
	dial func(ctx context.Context, server string) (net.Conn, error)
}

// New makes the tunnels. Nothing is connected before Run.
func New(c Config) *Tunnels {
	t := &Tunnels{Config: c, from: rand.Text(), idle: 4 * time.Hour}
	t.dial = t.open
	return t
}

// Run keeps a tunnel open to every server until ctx ends.
func (t *Tunnels) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	have := map[string]context.CancelFunc{}
	for servers := range t.Servers {
		want := map[string]bool{}
		for _, server := range servers {
			want[server] = true
			if have[server] == nil {
				ctx, stop := context.WithCancel(ctx)
				have[server] = stop
				wg.Go(func() { t.keep(ctx, server) })
			}
		}
		for server, stop := range have {
			if !want[server] {
				stop()
				delete(have, server)
			}
		}
	}
	return context.Cause(ctx)
}

// keep opens the tunnel to a server, again and again, until ctx ends.
func (t *Tunnels) keep(ctx context.Context, server string) {
	var pause time.Duration
	told := false
	for ctx.Err() == nil {
		begin := time.Now()
		opened, err := t.once(ctx, server)
		if ctx.Err() != nil {
			return
		}
		switch {
		case opened:
			t.Log.InfoContext(ctx, "the tunnel to a server has ended, and is opened again", "server", server, "err", err)
		case !told: // once is enough: the server may not be meant to be reached from here
			t.Log.WarnContext(ctx, "no tunnel to a server", "server", server, "err", err)
		}
		told = !opened
		var lived time.Duration
		if opened {
			lived = time.Since(begin)
		}
		pause = next(pause, lived, errors.Is(err, errTwice))
		select {
		case <-ctx.Done():
		case <-time.After(jitter(pause)):
		}
	}
}

// errTwice says that the server has a tunnel already, by another of its addresses.
var errTwice = errors.New("the server has a way to this node")

// once opens the tunnel to a server and serves it until it ends.
func (t *Tunnels) once(ctx context.Context, server string) (opened bool, err error) {
	conn, err := t.dial(ctx, server)
	if err != nil {
		return false, err
	}
	t.Log.DebugContext(ctx, "a tunnel to a server is open", "server", server)
	return true, t.serve(ctx, conn)
}

// open dials a server and turns the connection round.
func (t *Tunnels) open(ctx context.Context, server string) (net.Conn, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	config := t.TLS.Clone()
	config.NextProtos = []string{"http/1.1"}
	dialer := tls.Dialer{NetDialer: &net.Dialer{KeepAlive: 30 * time.Second}, Config: config}
	conn, err := dialer.DialContext(ctx, "tcp", server)
	if err != nil {
		return nil, err
	}
	release := context.AfterFunc(ctx, func() { _ = conn.Close() })
	r := bufio.NewReader(io.LimitReader(conn, maxHead))
	err = t.ask(conn, r, server)
	if !release() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	early, _ := r.Peek(r.Buffered()) // as many are there
	return &ahead{Conn: conn, r: io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn)}, nil
}

// ask is the request for a tunnel, and its answer.
func (t *Tunnels) ask(conn io.Writer, r *bufio.Reader, server string) error {
	var own []string
	for _, ip := range t.Own() {
		own = append(own, ip.String())
	}
	if len(own) == 0 {
		return errors.New("the node has no address yet")
	}
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: proa-agent\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %s\r\n%s: %s\r\n\r\n",
		stream.TunnelPath, server, stream.TunnelProtocol, stream.TunnelFrom, t.from, stream.TunnelAt, strings.Join(own, ","))
	if err != nil {
		return err
	}
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodPost}) //nolint:bodyclose // it ends with the connection
	if err != nil {
		return err
	}
	switch {
	case resp.StatusCode == http.StatusConflict:
		return errTwice
	case resp.StatusCode != http.StatusSwitchingProtocols:
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("the server says %s: %s", resp.Status, bytes.TrimSpace(text))
	case resp.Header.Get("Upgrade") != stream.TunnelProtocol:
		return fmt.Errorf("the server speaks %q, not %s", resp.Header.Get("Upgrade"), stream.TunnelProtocol)
	}
	return nil
}

// ahead is a connection of which some has been read.
type ahead struct {
	net.Conn
	r io.Reader
}

// Read reads first what was read before.
func (a *ahead) Read(b []byte) (int, error) { return a.r.Read(b) }
