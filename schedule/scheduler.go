package schedule

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Run schedules pods until ctx ends.
func Run(ctx context.Context, log *slog.Logger, c client.Client, config Config) error {
	s, err := newScheduler(ctx, log, c, config)
	if err != nil {
		return fmt.Errorf("scheduler: %w", err)
	}
	s.run(ctx)
	return nil
}

// bindsInFlight is how many pods are on their way to their nodes at a time.
const bindsInFlight = 64

// scheduler is the loop with all it holds.
type scheduler struct {
	log      *slog.Logger
	writer   client.Writer
	views    views
	profiles map[string]*Profile
	reads    []schema.GroupResource // besides pods and nodes

	mu        sync.Mutex // guards state, queue, nominated and assumed
	state     *State
	queue     *Queue
	nominated nominations
	assumed   map[types.UID]*PodInfo // pods that have a node here, but not yet in the cluster

	wake    chan struct{} // something is new in the queue
	binds   chan struct{} // one for each pod on its way
	idle    chan flight   // to those who bind pods and have none
	writes  chan struct{} // one for each other write
	work    sync.WaitGroup
	kept    *kept
	start   int // where the next search begins
	events  *events
	recent  *Recent
	metrics *Metrics
}

// views are the caches of the resources that are read.
type views map[schema.GroupResource]client.View

// Get is an object by its name.
func (v views) Get(gr schema.GroupResource, namespace, name string) (kind.Object, bool) {
	view := v[gr]
	if view == nil {
		return nil, false
	}
	return view.Get(namespace, name)
}

// List yields objects.
func (v views) List(gr schema.GroupResource, namespace string) iter.Seq[kind.Object] {
	view := v[gr]
	if view == nil {
		return func(func(kind.Object) bool) {}
	}
	return view.List(namespace)
}

func newScheduler(ctx context.Context, log *slog.Logger, c client.Client, config Config) (*scheduler, error) {
	s := &scheduler{
		log: log, writer: c, views: views{}, profiles: map[string]*Profile{}, assumed: map[types.UID]*PodInfo{},
		wake: make(chan struct{}, 1), binds: make(chan struct{}, bindsInFlight), idle: make(chan flight), writes: make(chan struct{}, bindsInFlight),
		kept: newKept(), recent: config.Recent, metrics: config.Metrics, start: rand.IntN(1 << 20),
	}
	if s.recent == nil {
		s.recent = NewRecent()
	}
	if s.metrics == nil {
		s.metrics = NewMetrics()
	}
	s.events = newEvents(c, log)
	profiles, err := config.profiles(Deps{Client: c, Log: log, Views: s.views, Events: s.events, Activate: s.activate, Go: func(f func(context.Context)) {
		s.work.Go(func() { f(ctx) })
	}})
	if err != nil {
		return nil, err
	}
	extenders, err := newExtenders(config.file().Extenders, config.post(ctx))
	if err != nil {
		return nil, err
	}
	for i := range profiles {
		profiles[i].Extenders = extenders
	}
	seen := map[schema.GroupResource]bool{gr.Pods: true, gr.Nodes: true}
	for i := range profiles {
		s.profiles[profiles[i].Name] = &profiles[i]
		for _, pl := range profiles[i].Plugins {
			for _, r := range pl.Reads {
				if !seen[r] {
					seen[r] = true
					s.reads = append(s.reads, r)
				}
			}
		}
	}
	for _, r := range append([]schema.GroupResource{gr.Pods, gr.Nodes}, s.reads...) {
		v, err := c.View(ctx, r)
		if err != nil {
			return nil, fmt.Errorf("open view of %s: %w", r, err)
		}
		s.views[r] = v
	}
	s.state = NewState(s.views)
	s.queue = NewQueue(config.queue(), profiles)
	s.nominated = newNominations()
	s.metrics.read = s.gauges
	return s, nil
}

// gauges are the numbers of now.
func (s *scheduler) gauges() gauges {
	s.mu.Lock()
	defer s.mu.Unlock()
	return gauges{
		pending: s.queue.Counts(), incoming: maps.Clone(s.queue.incoming), unschedulable: s.queue.rejected(),
		size: map[string]int{"nodes": s.state.Snapshot().Len(), "pods": len(s.state.homes), "assumed_pods": len(s.assumed)},
	}
}

// activate brings pods that wait to be tried now; plugins ask for it.
func (s *scheduler) activate(pods ...types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uid := range pods {
		s.queue.Activate(uid, time.Now())
	}
	s.signal()
}

// run reads what is there, and then schedules and keeps up until ctx ends.
func (s *scheduler) run(ctx context.Context) {
	s.load()
	s.work.Go(func() { s.events.run(ctx) })
	s.work.Go(func() { s.watch(ctx, gr.Nodes, s.onNode) })
	s.work.Go(func() { s.watch(ctx, gr.Pods, s.onPod) })
	for _, r := range s.reads {
		s.work.Go(func() { s.watch(ctx, r, func(ev client.Event) { s.onOther(r, ev) }) })
	}
	s.loop(ctx)
	s.work.Wait()
}

// loop takes pods from the queue, one after the other.
func (s *scheduler) loop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		s.mu.Lock()
		e, wait := s.queue.Pop(time.Now())
		var info *PodInfo
		if e != nil {
			info = e.Pod
		}
		s.mu.Unlock()
		s.events.busy(e != nil)
		if e != nil {
			s.attempt(ctx, e, info)
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// signal says that the queue may have something. The caller holds mu, or does not care.
func (s *scheduler) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// responsible says whether this scheduler is the one the pod wants.
func (s *scheduler) responsible(pod *corev1.Pod) bool {
	return s.profiles[pod.Spec.SchedulerName] != nil
}
