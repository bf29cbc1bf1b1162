// Package h2 is HTTP/2 as the server speaks it with its clients: the place of the one in net/http, behind the same handler and
// the same TLS.
//
// A request costs two goroutines: one that reads the connection, and its own. What a handler writes goes into the one
// buffer of its connection, and who finds nobody writing sends the buffer, with all that others add meanwhile. So an answer
// leaves in one piece, and an event that is for five hundred watches of a connection leaves in a few pieces rather than in five
// hundred. A small body is read before the handler starts, which then never waits for it.
//
// The laws it keeps:
//
//  1. The reader never waits for a handler or for the peer to read.
//  2. What a peer can make a connection hold is bounded: streams, handlers, unread bodies, fields, frames that wait to be sent. So is what
//     all connections hold together; before a request is authenticated, both bounds are lower (budget.go).
//  3. A handler that the peer has left is told, by its context and by the error of its next read or write.
//  4. A handler never waits for ever: a body has a deadline before its handler starts, and an answer that the peer does not take ends
//     its stream (stall.go).
//  5. An error of the peer ends its stream where that is enough, or the connection, with the code that RFC 9113 asks for.
package h2

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Config is what connections have in common.
type Config struct {
	// Streams is how many requests a connection may have at a time.
	Streams int
	// Header bounds the fields of a request, in bytes.
	Header int
	// Greeting is how long a client may take to say that it speaks HTTP/2, and for the header of a request that comes in several
	// frames; Idle is how long a connection without requests is kept.
	Greeting, Idle time.Duration
	// Unauthenticated bounds the bytes that all connections hold together on which no request has been authenticated, and Authenticated
	// those of all others; 0 is the default of this package. A handler says that its request is authenticated by calling the method
	// Authenticated of its ResponseWriter.
	Unauthenticated, Authenticated int64
	Log                            *slog.Logger
}

// connections are those that are open.
type connections struct {
	Config

	unauthenticated, authenticated budget // of the connections of each group

	mu    sync.Mutex
	conns map[*conn]struct{}
	ends  bool
}

func newConnections(c Config) *connections {
	s := &connections{Config: c, conns: map[*conn]struct{}{}}
	s.unauthenticated.limit = orDefault(c.Unauthenticated, unauthenticatedMemory)
	s.authenticated.limit = orDefault(c.Authenticated, authenticatedMemory)
	return s
}

// Attach makes an HTTP server speak HTTP/2 by this package, and end its connections when it shuts down.
func Attach(h *http.Server, c Config) {
	s := newConnections(c)
	h.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		"h2": func(_ *http.Server, secure *tls.Conn, handler http.Handler) {
			base, ok := handler.(interface{ BaseContext() context.Context })
			if !ok {
				s.Log.Error("net/http gives no context to an HTTP/2 connection")
				return
			}
			state := secure.ConnectionState()
			s.serve(base.BaseContext(), secure, &state, handler)
		},
	}
	h.RegisterOnShutdown(s.end)
}

// serve serves a connection until it ends.
func (s *connections) serve(ctx context.Context, socket net.Conn, state *tls.ConnectionState, handler http.Handler) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c := newConn(ctx, &s.Config, socket, state, handler)
	c.owner = s
	s.mu.Lock()
	s.conns[c] = struct{}{}
	ends := s.ends
	s.mu.Unlock()
	if ends {
		c.leave()
	}
	err := c.run() //nolint:contextcheck // it has it already
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	c.close()
	if err != nil {
		s.Log.Debug("an HTTP/2 connection ended", "remote", c.remote, "err", err)
	}
}

// end tells all clients to send no more requests here. A connection closes when those that it has are answered.
func (s *connections) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = true
	for c := range s.conns {
		c.leave()
	}
}
