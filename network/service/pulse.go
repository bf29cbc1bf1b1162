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
)

const (
	// patience is how long a change may wait before the proxy is said to be unwell.
	patience = time.Minute
	// knockAfter is when a port that is taken is tried again.
	knockAfter = 30 * time.Second
	// leaving is the taint of a node that an autoscaler is about to delete: load balancers shall send it nothing new.
	leaving = "ToBeDeletedByClusterAutoscaler"
)

// pulse is how a proxy is, in the words of kube-proxy.
type pulse struct {
	LastUpdated  time.Time              `json:"lastUpdated"`
	CurrentTime  time.Time              `json:"currentTime"`
	NodeEligible *bool                  `json:"nodeEligible,omitempty"`
	Healthy      bool                   `json:"healthy"`
	Status       map[string]familyPulse `json:"status,omitempty"`
}

// familyPulse is that of one family; here both have the same.
type familyPulse struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// queued notes that something waits to be written. The caller holds mu.
func (p *Proxy) queued() {
	if p.waiting.IsZero() {
		p.waiting = time.Now()
	}
}

// settled notes what became of something that has waited.
func (p *Proxy) settled(since time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.written = time.Now()
	} else if !since.IsZero() {
		p.waiting = since
	}
}

// state is how the proxy is now. Before the first rules are written it is well: it has just begun.
func (p *Proxy) state(now time.Time) pulse {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := pulse{LastUpdated: p.written, CurrentTime: now, Healthy: true}
	if p.written.IsZero() {
		return out
	}
	out.Healthy = p.waiting.IsZero() || now.Sub(p.waiting) < patience
	of := familyPulse{p.written, out.Healthy}
	out.Status = map[string]familyPulse{string(corev1.IPv4Protocol): of, string(corev1.IPv6Protocol): of}
	return out
}

// eligible tells whether load balancers may send new connections to this node.
func (p *Proxy) eligible() bool {
	o, _ := p.Nodes.Get("", p.NodeName)
	n, ok := o.(*corev1.Node)
	return ok && n.DeletionTimestamp == nil && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == leaving })
}

// handler answers /healthz, which load balancers ask, and /livez, which is about the proxy alone.
func (p *Proxy) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		s := p.state(time.Now())
		eligible := p.eligible()
		s.NodeEligible = &eligible
		answer(w, s, s.Healthy && eligible, p.metrics.healthz)
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		s := p.state(time.Now())
		answer(w, s, s.Healthy, p.metrics.livez)
	})
	return mux
}

func answer(w http.ResponseWriter, s pulse, well bool, count *prometheus.CounterVec) {
	code := http.StatusOK
	if well {
		s.LastUpdated = s.CurrentTime // who asks wants to see that it is recent
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

// serveHealth answers at the address of the settings until ctx ends. A port that is taken is tried again: Services work without.
func (p *Proxy) serveHealth(ctx context.Context) {
	if p.Health == "" {
		return
	}
	for first := true; ; first = false {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.Health)
		if err == nil {
			err = p.serve(ctx, l)
		}
		if ctx.Err() != nil {
			return
		}
		if first {
			p.Log.Warn("nobody can ask for the health of the service proxy; it is tried again", "address", p.Health, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(knockAfter):
		}
	}
}

func (p *Proxy) serve(ctx context.Context, l net.Listener) error {
	s := &http.Server{Handler: p.handler(), ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 14}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
