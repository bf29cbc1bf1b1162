// Package h2 is the HTTP/2 server of the API server. It replaces the HTTP/2 of net/http, behind the same http.Handler
// and the same TLS.
//
// A request costs two goroutines: the one that reads its connection, and the one that runs its handler. What handlers
// write goes into the one output buffer of the connection. A goroutine that finds nobody writing to the socket sends
// the buffer, and whatever others add meanwhile. So a response leaves in one write, and an event for five hundred
// watches of a connection leaves in a few writes rather than in five hundred. A small request body is read before the
// handler starts, which then never waits for it.
//
// The invariants of the package:
//
//  1. The reading goroutine never waits for a handler, nor for the peer to read.
//  2. What a peer can make a connection hold is bounded: streams, handlers, unread bodies, header fields, frames that wait to be
//     sent. So is what all connections hold together. Before a request is authenticated, both limits are lower (budget.go).
//  3. A handler whose peer has gone learns that from its context, and from the error of its next read or write.
//  4. A handler never waits forever: a body has a deadline before its handler starts, and a response that the peer does not read
//     ends its stream (stall.go).
//  5. A protocol error of the peer ends the stream where that is enough, otherwise the connection, with the error code that
//     RFC 9113 asks for.
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

// Config holds the settings that all connections share.
type Config struct {
	// Streams is the number of requests that a connection may have in flight (SETTINGS_MAX_CONCURRENT_STREAMS).
	Streams int
	// Header is the largest header list of a request, in bytes (SETTINGS_MAX_HEADER_LIST_SIZE).
	Header int
	// Greeting is the timeout for the connection preface of a client, and for a request header that comes in several
	// frames. Idle is the time after which a connection without requests is closed.
	Greeting, Idle time.Duration
	// Unauthenticated limits the bytes that all connections hold together on which no request has been authenticated
	// yet, and Authenticated those of all other connections. 0 means the default of this package. A handler reports
	// that its request is authenticated by calling the method Authenticated of its ResponseWriter.
	Unauthenticated, Authenticated int64
	Log                            *slog.Logger
}

// connections is the set of open connections of a server.
type connections struct {
	Config

	unauthenticated, authenticated budget // of the connections of each group

	mu           sync.Mutex
	conns        map[*conn]struct{}
	shuttingDown bool
}

func newConnections(c Config) *connections {
	s := &connections{Config: c, conns: map[*conn]struct{}{}}
	s.unauthenticated.limit = orDefault(c.Unauthenticated, unauthenticatedMemory)
	s.authenticated.limit = orDefault(c.Authenticated, authenticatedMemory)
	return s
}

// Attach makes an HTTP server use this package for HTTP/2. Its connections are shut down together with the server.
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
	h.RegisterOnShutdown(s.shutDown)
}

// serve serves a connection until it ends.
func (s *connections) serve(ctx context.Context, socket net.Conn, state *tls.ConnectionState, handler http.Handler) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	c := newConn(ctx, &s.Config, socket, state, handler)
	c.owner = s
	s.mu.Lock()
	s.conns[c] = struct{}{}
	ends := s.shuttingDown
	s.mu.Unlock()
	if ends {
		c.shutDown()
	}
	err := c.run() //nolint:contextcheck // the connection was made with it
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	c.close()
	if err != nil {
		s.Log.Debug("an HTTP/2 connection ended", "remote", c.remote, "err", err)
	}
}

// shutDown asks all clients to send no more requests. Each connection closes once its requests are answered.
func (s *connections) shutDown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shuttingDown = true
	for c := range s.conns {
		c.shutDown()
	}
}
