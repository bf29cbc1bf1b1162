package service

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"proa.dev/internal/connlimit"
)

// healthChecks serves the health check ports of Services with the external traffic policy Local: load balancers ask there whether this node
// has endpoints.
type healthChecks struct {
	log         *slog.Logger
	connections *connlimit.Budget
	// healthy reports whether the service proxy is healthy.
	healthy func() bool

	mu      sync.Mutex // guards the rest
	want    map[key]healthCheck
	servers map[key]*healthServer
	wg      sync.WaitGroup
}

type healthServer struct {
	port   uint16
	server *http.Server
}

// healthProblem is a health check port that could not be opened.
type healthProblem struct {
	key  key
	port uint16
	err  error
}

func newHealthChecks(log *slog.Logger, connections *connlimit.Budget, healthy func() bool) *healthChecks {
	return &healthChecks{log: log, connections: connections, healthy: healthy,
		want: map[key]healthCheck{}, servers: map[key]*healthServer{}}
}

// set sets the health check of a Service; nil removes it.
func (h *healthChecks) set(k key, c *healthCheck) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c == nil {
		delete(h.want, k)
	} else {
		h.want[k] = *c
	}
}

// apply opens and closes ports. It returns the ports that could not be opened.
func (h *healthChecks) apply() (problems []healthProblem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, s := range h.servers {
		if c, ok := h.want[k]; !ok || c.port != s.port {
			_ = s.server.Close()
			delete(h.servers, k)
		}
	}
	for k, c := range h.want {
		if h.servers[k] != nil {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", c.port))
		if err != nil {
			problems = append(problems, healthProblem{k, c.port, err})
			continue
		}
		s := &healthServer{c.port, healthServerOf(h.handler(k))}
		h.servers[k] = s
		l = h.connections.Listener(l, "service-health-checks", connlimit.Public)
		h.wg.Go(func() { h.serve(k, s, l) })
	}
	return problems
}

// serve serves a port until it is closed. One that fails is forgotten, so that apply opens it again.
func (h *healthChecks) serve(k key, s *healthServer, l net.Listener) {
	err := s.server.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return
	}
	h.log.Error("the health check of a Service ended; it is started again", "service", k.String(), "err", err)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.servers[k] == s {
		delete(h.servers, k)
	}
}

// healthServerOf returns a server for clients that are nobody in particular: load balancers, and whoever reaches the node.
func healthServerOf(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 14, ConnState: connlimit.ConnState}
}

func (h *healthChecks) close() {
	h.mu.Lock()
	for _, s := range h.servers {
		_ = s.server.Close()
	}
	clear(h.servers)
	h.mu.Unlock()
	h.wg.Wait()
}

func (h *healthChecks) handler(k key) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		h.mu.Lock()
		n := h.want[k].local
		h.mu.Unlock()
		healthy := h.healthy()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(n))
		if n == 0 || !healthy {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = fmt.Fprintf(w, "{\n\t\"service\": {\n\t\t\"namespace\": %q,\n\t\t\"name\": %q\n\t},\n\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": %v\n}",
			k.Namespace, k.Name, n, healthy)
	}
}
