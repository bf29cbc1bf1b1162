// Package usage measures what nodes and Pods use, for the resource metrics API. The agents of nodes tell how much was used
// ever; two looks make a speed. Nobody is asked before somebody asks here: the first answer takes two looks, a second
// apart, and whoever asks every few seconds gets what was used in between.
package usage

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Ways lead to the agents of nodes.
type Ways interface {
	Agent(n *corev1.Node) (at *url.URL, by *http.Transport, err error)
}

const (
	// fresh is how long an answer counts.
	fresh = 5 * time.Second
	// stale is the longest time over which usage is averaged.
	stale = 5 * time.Minute
	// apart is how far two looks are apart when there is no older one.
	apart = time.Second
	// within is how long an agent may take to answer, and most how long the answer may be.
	within = 10 * time.Second
	most   = 64 << 20
	// atOnce is how many agents are asked at the same time.
	atOnce = 32
)

// Source measures.
type Source struct {
	ways Ways
	log  *slog.Logger

	mu    sync.Mutex // guards nodes
	nodes map[string]*node
}

// node is what is known of a node. Its lock is held while the agent is asked, so that one question answers all who wait.
type node struct {
	mu        sync.Mutex
	uid       string
	now, then *sample
}

// New makes a source.
func New(w Ways, log *slog.Logger) *Source {
	return &Source{ways: w, log: log, nodes: map[string]*node{}}
}

// Nodes is what nodes use.
func (s *Source) Nodes(ctx context.Context, d kind.Door) (out []*metricsv1beta1.NodeMetrics, err error) {
	all, err := s.look(ctx, d)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		u, ok := speed(l.now.node, l.then.node, time.Time{})
		if !ok {
			continue
		}
		out = append(out, &metricsv1beta1.NodeMetrics{
			ObjectMeta: metav1.ObjectMeta{Name: l.of.Name, Labels: l.of.Labels, CreationTimestamp: metav1.Now()},
			Timestamp:  metav1.NewTime(u.at), Window: metav1.Duration{Duration: u.window}, Usage: u.list(),
		})
	}
	slices.SortFunc(out, func(a, b *metricsv1beta1.NodeMetrics) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Pods is what Pods use. One is left out while something is not known of one of its containers.
func (s *Source) Pods(ctx context.Context, d kind.Door) (out []*metricsv1beta1.PodMetrics, err error) {
	all, err := s.look(ctx, d)
	if err != nil {
		return nil, err
	}
	known, err := d.List(ctx, gr.Pods, "")
	if known == nil {
		return nil, err
	}
	byNode := map[string]*look{}
	for _, l := range all {
		byNode[l.of.Name] = l
	}
	for o := range known {
		p := o.(*corev1.Pod)
		l := byNode[p.Spec.NodeName]
		if l == nil || p.Status.Phase != corev1.PodRunning {
			continue
		}
		if m := l.pod(p); m != nil {
			out = append(out, m)
		}
	}
	return out, nil
}

// look is two samples of a node.
type look struct {
	of        *corev1.Node
	now, then *sample
}

// pod is what one Pod uses, if all is known.
func (l *look) pod(p *corev1.Pod) *metricsv1beta1.PodMetrics {
	out := &metricsv1beta1.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, CreationTimestamp: metav1.Now()}}
	containers := l.now.pods[key{p.Namespace, p.Name}]
	for name, now := range containers {
		u, ok := speed(now, l.then.pods[key{p.Namespace, p.Name}][name], now.began)
		if !ok {
			return nil
		}
		out.Containers = append(out.Containers, metricsv1beta1.ContainerMetrics{Name: name, Usage: u.list()})
		if out.Timestamp.IsZero() || u.at.Before(out.Timestamp.Time) {
			out.Timestamp, out.Window = metav1.NewTime(u.at), metav1.Duration{Duration: u.window}
		}
	}
	if len(out.Containers) == 0 {
		return nil
	}
	slices.SortFunc(out.Containers, func(a, b metricsv1beta1.ContainerMetrics) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// used is a speed and an amount.
type used struct {
	at     time.Time
	window time.Duration
	cores  float64
	memory float64
}

// list is usage as the API words it.
func (u used) list() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(u.cores*1e9), resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(int64(u.memory), resource.BinarySI),
	}
}

// speed compares two counters. What began in between is compared with its beginning.
func speed(now, then counter, began time.Time) (used, bool) {
	if !now.known() {
		return used{}, false
	}
	from, base := then.at, then.seconds
	if !then.known() || now.seconds < then.seconds || began.After(then.at) {
		from, base = began, 0
	}
	window := now.at.Sub(from)
	if from.IsZero() || window < apart/2 {
		return used{}, false
	}
	return used{at: now.at, window: window, cores: (now.seconds - base) / window.Seconds(), memory: now.memory}, true
}

// look asks the agents of all nodes that can be asked.
func (s *Source) look(ctx context.Context, d kind.Door) ([]*look, error) {
	all, err := d.List(ctx, gr.Nodes, "")
	if all == nil {
		return nil, err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex // guards out
	var out []*look
	seats, here := make(chan struct{}, atOnce), map[string]bool{}
	for o := range all {
		n := o.(*corev1.Node)
		here[n.Name] = true
		at, by, err := s.ways.Agent(n)
		if err != nil {
			continue // nobody is there
		}
		wg.Go(func() {
			seats <- struct{}{}
			defer func() { <-seats }()
			l, err := s.one(ctx, n, func(ctx context.Context) (*sample, error) { return ask(ctx, at, by) })
			if err != nil {
				s.log.DebugContext(ctx, "a node does not tell what it uses", "node", n.Name, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, l)
		})
	}
	wg.Wait()
	s.mu.Lock()
	for name := range s.nodes {
		if !here[name] {
			delete(s.nodes, name)
		}
	}
	s.mu.Unlock()
	return out, ctx.Err()
}

// one looks at a node, twice if there is no older look to compare with.
func (s *Source) one(ctx context.Context, of *corev1.Node, ask func(context.Context) (*sample, error)) (*look, error) {
	s.mu.Lock()
	n := s.nodes[of.Name]
	if n == nil || n.uid != string(of.UID) {
		n = &node{uid: string(of.UID)}
		s.nodes[of.Name] = n
	}
	s.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.now != nil && n.then != nil && time.Since(n.now.asked) < fresh {
		return &look{of, n.now, n.then}, nil
	}
	if n.now == nil || time.Since(n.now.asked) > stale {
		first, err := ask(ctx)
		if err != nil {
			return nil, err
		}
		n.now, n.then = first, nil
	}
	if wait := apart - time.Since(n.now.asked); wait > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
	next, err := ask(ctx)
	if err != nil {
		return nil, err
	}
	n.now, n.then = next, n.now
	return &look{of, n.now, n.then}, nil
}

// ask reads the counters of a node from its agent.
func ask(ctx context.Context, at *url.URL, by *http.Transport) (*sample, error) {
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	u := *at
	u.Path = "/metrics/resource"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	resp, err := by.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the agent answers %s", resp.Status)
	}
	s, err := parse(io.LimitReader(resp.Body, most), now)
	if err != nil {
		return nil, err
	}
	s.asked = now
	return s, nil
}
