// Package tunnel is the node's end of the tunnels by which API servers reach its agent and its Pods if there is no
// route to them: the agent dials out, authenticates with the certificate of its node, and from then on serves the
// server's requests over that connection. All that can be requested is a connection to an address of the node or of one
// of its Pods.
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

	"proa.dev/internal/wait"
	"proa.dev/kinds/lib/streamoptions"
)

// Config is what Tunnels needs.
type Config struct {
	// Servers yields the addresses of all API servers, HOST:PORT, and again whenever they change. It ends with the
	// context of Run.
	Servers iter.Seq[[]string]
	// TLS is the configuration for requests to the API: it has the certificate of the node.
	TLS *tls.Config
	// NodeIPs returns the addresses of the node, Pod reports whether an address is that of one of its Pods.
	NodeIPs func() []netip.Addr
	IsPodIP func(netip.Addr) bool
	Log     *slog.Logger
}

const (
	// dialTimeout is how long a server may take to open a tunnel, and an address of the node to answer.
	dialTimeout = 10 * time.Second
	// maxHead limits the size of the server's response that opens the tunnel.
	maxHead = 16 << 10
)

// Tunnels are the tunnels of a node, one to each server.
type Tunnels struct {
	Config
	// from identifies this process.
	from string
	// idle is the idle timeout of a connection.
	idle time.Duration
	// dial opens the tunnel to a server; tests replace it.
	dial func(ctx context.Context, server string) (net.Conn, error)
}

// New makes a Tunnels. Nothing is connected before Run.
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

// keep keeps the tunnel to a server open until ctx ends.
func (t *Tunnels) keep(ctx context.Context, server string) {
	var pause time.Duration
	logged := false
	for ctx.Err() == nil {
		begin := time.Now()
		opened, err := t.once(ctx, server)
		if ctx.Err() != nil {
			return
		}
		switch {
		case opened:
			t.Log.InfoContext(ctx, "the tunnel to a server has ended; opening it again", "server", server, "err", err)
		case !logged: // once is enough: the server may not be reachable from here at all
			t.Log.WarnContext(ctx, "no tunnel to a server", "server", server, "err", err)
		}
		logged = !opened
		var lived time.Duration
		if opened {
			lived = time.Since(begin)
		}
		pause = next(pause, lived, errors.Is(err, errDuplicate))
		_ = wait.Sleep(ctx, jitter(pause))
	}
}

// errDuplicate says that the server has a tunnel already, through another of its addresses.
var errDuplicate = errors.New("the server has a way to this node")

// once opens the tunnel to a server and serves it until it ends.
func (t *Tunnels) once(ctx context.Context, server string) (opened bool, err error) {
	conn, err := t.dial(ctx, server)
	if err != nil {
		return false, err
	}
	t.Log.DebugContext(ctx, "a tunnel to a server is open", "server", server)
	return true, t.serve(ctx, conn)
}

// open dials a server and upgrades the connection to a tunnel.
func (t *Tunnels) open(ctx context.Context, server string) (net.Conn, error) {
	ctx, stop := context.WithTimeout(ctx, dialTimeout)
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
	early, _ := r.Peek(r.Buffered()) // as many bytes are buffered
	return &prefixedConn{Conn: conn, r: io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn)}, nil
}

// ask sends the request for a tunnel, and reads the response.
func (t *Tunnels) ask(conn io.Writer, r *bufio.Reader, server string) error {
	var own []string
	for _, ip := range t.NodeIPs() {
		own = append(own, ip.String())
	}
	if len(own) == 0 {
		return errors.New("the node has no address yet")
	}
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: proa-agent\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %s\r\n%s: %s\r\n\r\n",
		streamoptions.TunnelPath, server, streamoptions.TunnelProtocol, streamoptions.TunnelFrom, t.from, streamoptions.TunnelAt,
		strings.Join(own, ","))
	if err != nil {
		return err
	}
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodPost}) //nolint:bodyclose // the caller closes the connection
	if err != nil {
		return err
	}
	switch {
	case resp.StatusCode == http.StatusConflict:
		return errDuplicate
	case resp.StatusCode != http.StatusSwitchingProtocols:
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("the server says %s: %s", resp.Status, bytes.TrimSpace(text))
	case resp.Header.Get("Upgrade") != streamoptions.TunnelProtocol:
		return fmt.Errorf("the server speaks %q, not %s", resp.Header.Get("Upgrade"), streamoptions.TunnelProtocol)
	}
	return nil
}

// prefixedConn is a connection whose first bytes have been read already.
type prefixedConn struct {
	net.Conn
	r io.Reader
}

// Read returns the bytes that were read already first.
func (a *prefixedConn) Read(b []byte) (int, error) { return a.r.Read(b) }
