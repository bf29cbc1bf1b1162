package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

// Server is a server of the cluster.
type Server struct {
	// Address is its HOST:PORT, and Name what its certificate must be valid for.
	Address, Name string
}

// ServerName is a name in the certificate of every API server, which no node and nobody else may have. Servers of which the cluster
// says the address are known by it.
const ServerName = "kubernetes.default.svc"

const (
	// nextServer is how long a server may take to complete a handshake before another one is tried at the same time.
	nextServer = 300 * time.Millisecond
	// maxConnections is how many connections are remembered, to close them when they have the wrong timeouts.
	maxConnections = 8
	// movePause is the shortest time between two moves away from servers that answer, but say that they are not available.
	movePause = 30 * time.Second
)

type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// dialed is what came of connecting to a server.
type dialed struct {
	to   Server
	conn *tls.Conn
	err  error
}

// dialAny returns a function that connects to the server that completes a handshake first, beginning with the one that did so last.
func (c *Client) dialAny(dial dialFunc, config *tls.Config) dialFunc {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		ctx, stop := context.WithTimeout(ctx, 10*time.Second)
		defer stop()
		all := c.inOrder()
		results := make(chan dialed, len(all))
		next := time.NewTimer(0)
		defer next.Stop()
		var errs []error
		for begun := 0; len(errs) < len(all); {
			select {
			case <-next.C:
				if begun == len(all) {
					continue
				}
				to := all[begun]
				begun++
				go func() { results <- handshake(ctx, dial, network, to, config) }()
				next.Reset(nextServer)
			case d := <-results:
				if d.err != nil {
					errs = append(errs, d.err)
					next.Reset(0)
					continue
				}
				c.remember(d)
				go closeOthers(results, begun-len(errs)-1)
				return d.conn, nil
			case <-ctx.Done():
				go closeOthers(results, begun-len(errs))
				return nil, errors.Join(append(errs, ctx.Err())...)
			}
		}
		return nil, errors.Join(errs...)
	}
}

// handshake connects to one server.
func handshake(ctx context.Context, dial dialFunc, network string, to Server, config *tls.Config) dialed {
	raw, err := dial(ctx, network, to.Address)
	if err != nil {
		return dialed{to: to, err: err}
	}
	config = config.Clone()
	config.ServerName, config.NextProtos = to.Name, []string{"h2", "http/1.1"}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return dialed{to: to, err: fmt.Errorf("%s: %w", to.Address, err)}
	}
	return dialed{to: to, conn: conn}
}

// closeOthers closes the connections that came too late.
func closeOthers(results <-chan dialed, n int) {
	for range n {
		if d := <-results; d.conn != nil {
			_ = d.conn.Close()
		}
	}
}

// inOrder returns the servers in the order in which they are tried: that of the last connection first.
func (c *Client) inOrder() []Server {
	all, _ := c.Servers()
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(all, c.last); i > 0 {
		all = slices.Concat(all[i:i+1], all[:i], all[i+1:])
	}
	return all
}

// remember takes note of a connection.
func (c *Client) remember(d dialed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.Address != "" && c.last != d.to {
		c.Log.Info("another API server is used", "server", d.to.Address, "before", c.last.Address)
	}
	c.last = d.to
	c.connections = append(c.connections, d.conn)
	if len(c.connections) > maxConnections {
		c.connections = c.connections[1:]
	}
}

// pings returns after how much time of silence a connection is pinged, and how long the answer may take. Where there is another server,
// one that does not answer is left within two seconds; a client of the only one need not hurry, and sends nothing in vain.
func (c *Client) pings() (after, limit time.Duration) {
	if c.Servers != nil {
		if _, several := c.Servers(); several {
			return time.Second, time.Second
		}
	}
	return 15 * time.Second, 10 * time.Second
}

// tryOtherServer moves the client to another server, if there is one, because the one that it uses cannot reach the store. In an outage of
// the store that all servers feel it does so rarely.
func (c *Client) tryOtherServer() {
	if c.Servers == nil {
		return
	}
	all, several := c.Servers()
	c.mu.Lock()
	i := slices.Index(all, c.last)
	if !several || time.Since(c.movedAt) < movePause || i < 0 {
		c.mu.Unlock()
		return
	}
	c.movedAt, c.last = time.Now(), all[(i+1)%len(all)]
	c.Log.Info("the API server is not available; another one is used", "server", all[i].Address, "next", c.last.Address)
	c.mu.Unlock()
	c.reconnect(time.Second) // its watches show nothing new
}

// Reconnect makes new connections to servers, with the timeouts for the present number of servers. The old ones are closed when the
// requests on them have had their time. Views continue where they were.
func (c *Client) Reconnect() { c.reconnect(requestTimeout) }

// reconnect makes new connections, and closes the old ones after a while.
func (c *Client) reconnect(after time.Duration) {
	c.Renew()
	c.mu.Lock()
	old := c.connections
	c.connections = nil
	c.mu.Unlock()
	time.AfterFunc(after, func() {
		for _, conn := range old {
			_ = conn.Close()
		}
	})
}
