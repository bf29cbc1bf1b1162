package service

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/internal/connlimit"
	"proa.dev/internal/wait"
)

const (
	// healthTimeout is how long a change may wait before the proxy counts as unhealthy.
	healthTimeout = time.Minute
	// listenRetry is the pause between attempts to listen at an address that is in use.
	listenRetry = 30 * time.Second
	// toBeDeletedTaint is the taint of a node that an autoscaler is about to delete: load balancers must not send it new connections.
	toBeDeletedTaint = "ToBeDeletedByClusterAutoscaler"
)

// healthStatus is the body of /healthz and /livez, in the format of kube-proxy.
type healthStatus struct {
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"`
	Healthy      bool                    `json:"healthy"`
	Status       map[string]familyStatus `json:"status,omitempty"`
}

// familyStatus is the status of one address family. Both families always have the same here.
type familyStatus struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// startWaiting records that a change waits to be written. The caller holds mu.
func (p *Proxy) startWaiting() {
	if p.waitingSince.IsZero() {
		p.waitingSince = time.Now()
	}
}

// stopWaiting records the outcome of writing the changes that have waited since a time.
func (p *Proxy) stopWaiting(since time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.lastWrite = time.Now()
	} else if !since.IsZero() {
		p.waitingSince = since
	}
}

// state returns the current status. The proxy is healthy before it has written the first rules.
func (p *Proxy) state(now time.Time) healthStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := healthStatus{LastUpdated: p.lastWrite, CurrentTime: now, Healthy: true}
	if p.lastWrite.IsZero() {
		return out
	}
	out.Healthy = p.waitingSince.IsZero() || now.Sub(p.waitingSince) < healthTimeout
	family := familyStatus{p.lastWrite, out.Healthy}
	out.Status = map[string]familyStatus{string(corev1.IPv4Protocol): family, string(corev1.IPv6Protocol): family}
	return out
}

// isEligible reports whether load balancers may send new connections to this node.
func (p *Proxy) isEligible() bool {
	o, _ := p.Nodes.Get("", p.NodeName)
	n, ok := o.(*corev1.Node)
	return ok && n.DeletionTimestamp == nil &&
		!slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == toBeDeletedTaint })
}

// handler serves /healthz for load balancers and /livez, which is about the proxy alone.
func (p *Proxy) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		s := p.state(time.Now())
		eligible := p.isEligible()
		s.NodeEligible = &eligible
		answer(w, s, s.Healthy && eligible, p.metrics.healthz)
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		s := p.state(time.Now())
		answer(w, s, s.Healthy, p.metrics.livez)
	})
	return mux
}

func answer(w http.ResponseWriter, s healthStatus, ok bool, count *prometheus.CounterVec) {
	code := http.StatusOK
	if ok {
		s.LastUpdated = s.CurrentTime // as kube-proxy does
	} else {
		code = http.StatusServiceUnavailable
	}
	count.WithLabelValues(strconv.Itoa(code)).Inc()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	if data, err := json.Marshal(s); err == nil {
		_, _ = w.Write(data)
	}
}

// statusHandler serves /proxyMode and /healthz in the form of kube-proxy's port for metrics.
func statusHandler() http.Handler {
	text := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			_, _ = w.Write([]byte(body))
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/proxyMode", text("nftables"))
	mux.HandleFunc("/healthz", text("ok"))
	return mux
}

// serveAt serves HTTP at an address until ctx ends; an empty address is none. If the address is in use, it is tried again; Services
// work meanwhile.
func (p *Proxy) serveAt(ctx context.Context, address string, h http.Handler) {
	if address == "" {
		return
	}
	for first := true; ; first = false {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err == nil {
			err = serve(ctx, p.Connections.Listener(l, "service-proxy-health", connlimit.Public), h)
		}
		if ctx.Err() != nil {
			return
		}
		if first {
			p.Log.Warn("the health endpoints of the service proxy cannot be served; it is tried again", "address", address, "err", err)
		}
		if wait.Sleep(ctx, listenRetry) != nil {
			return
		}
	}
}

func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := healthServerOf(h)
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
