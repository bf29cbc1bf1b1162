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
)

// healthChecks serves the health check ports of Services with the external traffic policy Local: load balancers ask there whether this node
// has endpoints.
type healthChecks struct {
	log *slog.Logger
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

func newHealthChecks(log *slog.Logger, healthy func() bool) *healthChecks {
	return &healthChecks{log: log, healthy: healthy, want: map[key]healthCheck{}, servers: map[key]*healthServer{}}
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
		s := &healthServer{c.port, &http.Server{Handler: h.handler(k), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 1 << 14}}
		h.servers[k] = s
		h.wg.Go(func() {
			if err := s.server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
				h.log.Error("the health check of a Service ended", "service", k.String(), "err", err)
			}
		})
	}
	return problems
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
