// Package resourcemetrics measures what nodes and Pods use, for the resource metrics API (metrics.k8s.io). The agents
// of nodes report how much CPU time was used so far; the difference of two samples is a rate. Agents are asked only
// when there is a request: the first response takes two samples, a second apart, and a client that asks every few
// seconds gets the usage in between.
package resourcemetrics

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

	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// Ways provides connections to the agents of nodes.
type Ways interface {
	Agent(n *corev1.Node) (at *url.URL, by *http.Transport, err error)
}

const (
	// cacheTime is how long a sample is reused.
	cacheTime = 5 * time.Second
	// maxWindow is the longest time over which usage is averaged.
	maxWindow = 5 * time.Minute
	// minWindow is the time between two samples when there is no older one.
	minWindow = time.Second
	// fetchTimeout is how long an agent may take to respond, and maxResponse the size of the largest response.
	fetchTimeout = 10 * time.Second
	maxResponse  = 64 << 20
	// maxConcurrent is how many agents are asked at the same time.
	maxConcurrent = 32
)

// Source measures the usage of nodes and Pods.
type Source struct {
	ways Ways
	log  *slog.Logger

	mu    sync.Mutex // guards nodes
	nodes map[string]*node
}

// node holds the samples of a node. Its lock is held while the agent is asked, so that one response serves all waiting
// requests.
type node struct {
	mu               sync.Mutex
	uid              string
	latest, previous *sample
}

// New returns a source.
func New(w Ways, log *slog.Logger) *Source {
	return &Source{ways: w, log: log, nodes: map[string]*node{}}
}

// Nodes returns the usage of nodes.
func (s *Source) Nodes(ctx context.Context, d kind.Server) (out []*metricsv1beta1.NodeMetrics, err error) {
	all, err := s.sampleNodes(ctx, d)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		u, ok := usageBetween(l.latest.node, l.previous.node, time.Time{})
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

// Pods returns the usage of Pods, without Pods of which a container's usage is not known.
func (s *Source) Pods(ctx context.Context, d kind.Server) (out []*metricsv1beta1.PodMetrics, err error) {
	all, err := s.sampleNodes(ctx, d)
	if err != nil {
		return nil, err
	}
	known, err := d.List(ctx, gr.Pods, "")
	if known == nil {
		return nil, err
	}
	byNode := map[string]*samplePair{}
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

// samplePair is two samples of a node.
type samplePair struct {
	of               *corev1.Node
	latest, previous *sample
}

// pod returns the usage of one Pod, or nil if it is not known completely.
func (l *samplePair) pod(p *corev1.Pod) *metricsv1beta1.PodMetrics {
	out := &metricsv1beta1.PodMetrics{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels,
		CreationTimestamp: metav1.Now()}}
	containers := l.latest.pods[key{p.Namespace, p.Name}]
	for name, now := range containers {
		u, ok := usageBetween(now, l.previous.pods[key{p.Namespace, p.Name}][name], now.started)
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

// usage is a rate of CPU time and an amount of memory.
type usage struct {
	at     time.Time
	window time.Duration
	cores  float64
	memory float64
}

// list returns the usage as a ResourceList.
func (u usage) list() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(int64(u.cores*1e9), resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(int64(u.memory), resource.BinarySI),
	}
}

// usageBetween compares two counters. For something that was started in between, usage is counted from its start.
func usageBetween(now, then counter, began time.Time) (usage, bool) {
	if !now.isComplete() {
		return usage{}, false
	}
	from, base := then.at, then.seconds
	if !then.isComplete() || now.seconds < then.seconds || began.After(then.at) {
		from, base = began, 0
	}
	window := now.at.Sub(from)
	if from.IsZero() || window < minWindow/2 {
		return usage{}, false
	}
	return usage{at: now.at, window: window, cores: (now.seconds - base) / window.Seconds(), memory: now.memory}, true
}

// sampleNodes takes samples of all nodes with an agent.
func (s *Source) sampleNodes(ctx context.Context, d kind.Server) ([]*samplePair, error) {
	all, err := d.List(ctx, gr.Nodes, "")
	if all == nil {
		return nil, err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex // guards out
	var out []*samplePair
	seats, here := make(chan struct{}, maxConcurrent), map[string]bool{}
	for o := range all {
		n := o.(*corev1.Node)
		here[n.Name] = true
		at, by, err := s.ways.Agent(n)
		if err != nil {
			continue // it has no agent
		}
		wg.Go(func() {
			seats <- struct{}{}
			defer func() { <-seats }()
			l, err := s.sampleNode(ctx, n, func(ctx context.Context) (*sample, error) { return fetchSample(ctx, at, by) })
			if err != nil {
				s.log.DebugContext(ctx, "cannot read the resource metrics of a node", "node", n.Name, "err", err)
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

// sampleNode takes a sample of a node, and a second one if there is no older one to compare with.
func (s *Source) sampleNode(ctx context.Context, of *corev1.Node, ask func(context.Context) (*sample, error)) (*samplePair, error) {
	s.mu.Lock()
	n := s.nodes[of.Name]
	if n == nil || n.uid != string(of.UID) {
		n = &node{uid: string(of.UID)}
		s.nodes[of.Name] = n
	}
	s.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.latest != nil && n.previous != nil && time.Since(n.latest.asked) < cacheTime {
		return &samplePair{of, n.latest, n.previous}, nil
	}
	if n.latest == nil || time.Since(n.latest.asked) > maxWindow {
		first, err := ask(ctx)
		if err != nil {
			return nil, err
		}
		n.latest, n.previous = first, nil
	}
	if err := wait.Sleep(ctx, minWindow-time.Since(n.latest.asked)); err != nil {
		return nil, err
	}
	next, err := ask(ctx)
	if err != nil {
		return nil, err
	}
	n.latest, n.previous = next, n.latest
	return &samplePair{of, n.latest, n.previous}, nil
}

// fetchSample reads the counters of a node from its agent.
func fetchSample(ctx context.Context, at *url.URL, by *http.Transport) (*sample, error) {
	ctx, stop := context.WithTimeout(ctx, fetchTimeout)
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
	s, err := parse(io.LimitReader(resp.Body, maxResponse), now)
	if err != nil {
		return nil, err
	}
	s.asked = now
	return s, nil
}
