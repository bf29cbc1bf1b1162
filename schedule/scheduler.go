package schedule

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/eventseries"
	"proa.dev/schedule/framework"
	"proa.dev/schedule/podqueue"
	"proa.dev/schedule/waitrecord"
)

// Run schedules Pods until ctx ends.
func Run(ctx context.Context, log *slog.Logger, c client.Client, config Config) error {
	s, err := newScheduler(ctx, log, c, config)
	if err != nil {
		return fmt.Errorf("scheduler: %w", err)
	}
	s.run(ctx)
	return nil
}

// bindsInFlight is the maximum number of concurrent bindings.
const bindsInFlight = 64

// scheduler is a running scheduler.
type scheduler struct {
	log      *slog.Logger
	writer   client.Writer
	views    views
	profiles map[string]*framework.Profile
	reads    []schema.GroupResource // besides Pods and nodes

	mu        sync.Mutex // guards state, queue, nominated and assumed
	state     *framework.State
	queue     *podqueue.Queue
	nominated nominations
	assumed   map[types.UID]*framework.PodInfo // Pods that have a node but are not bound yet

	wake        wait.Signal   // wakes loop when the queue has changed
	binds       chan struct{} // has an element for each binding in progress
	idleBinders chan binding  // to goroutines that wait for a Pod to bind
	writes      chan struct{} // has an element for each status write in progress
	work        sync.WaitGroup
	prepared    *preparedPods
	searchStart int // the position at which the next search begins
	events      *eventseries.Recorder
	recent      *Recent
	metrics     *Metrics
	records     *waitrecord.Recorder // nil if nothing is recorded
}

// views has the views of the resources that the scheduler reads. It implements framework.Cluster.
type views map[schema.GroupResource]client.View

// Get returns an object.
func (v views) Get(on schema.GroupResource, namespace, name string) (kind.Object, bool) {
	view := v[on]
	if view == nil {
		return nil, false
	}
	return view.Get(namespace, name)
}

// List yields the objects of a resource.
func (v views) List(on schema.GroupResource, namespace string) iter.Seq[kind.Object] {
	view := v[on]
	if view == nil {
		return func(func(kind.Object) bool) {}
	}
	return view.List(namespace)
}

func newScheduler(ctx context.Context, log *slog.Logger, c client.Client, config Config) (*scheduler, error) {
	s := &scheduler{
		log: log, writer: c, views: views{}, profiles: map[string]*framework.Profile{}, assumed: map[types.UID]*framework.PodInfo{},
		wake: wait.NewSignal(), binds: make(chan struct{}, bindsInFlight), idleBinders: make(chan binding),
		writes:   make(chan struct{}, bindsInFlight),
		prepared: newPreparedPods(), recent: config.Recent, metrics: config.Metrics, records: waitrecord.New(config.Record),
		searchStart: rand.IntN(1 << 20),
	}
	if s.recent == nil {
		s.recent = NewRecent()
	}
	if s.metrics == nil {
		s.metrics = NewMetrics()
	}
	s.events = eventseries.New(c, log)
	profiles, err := config.profiles(framework.Deps{Client: c, Log: log, Views: s.views, Events: s.events, Activate: s.activate,
		Go: func(f func(context.Context)) {
			s.work.Go(func() { f(ctx) })
		}})
	if err != nil {
		return nil, err
	}
	extenders, err := framework.NewExtenders(config.file().Extenders, config.post(ctx))
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
	s.state = framework.NewState(s.views)
	s.queue = podqueue.New(config.queueSettings(), profiles)
	s.nominated = newNominations()
	s.metrics.read = s.gauges
	return s, nil
}

// gauges returns the current values of the gauges.
func (s *scheduler) gauges() gauges {
	s.mu.Lock()
	defer s.mu.Unlock()
	return gauges{
		pending: s.queue.Counts(), incoming: s.queue.Arrivals(), unschedulable: s.queue.UnschedulableCounts(),
		size: map[string]int{"nodes": s.state.Snapshot().Len(), "pods": s.state.PodCount(), "assumed_pods": len(s.assumed)},
	}
}

// activate moves Pods to the active queue, at the request of a plugin.
func (s *scheduler) activate(pods ...types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uid := range pods {
		s.queue.Activate(uid, time.Now())
	}
	s.wake.Send()
}

// run loads the nodes and Pods, and then schedules Pods and watches for changes until ctx ends.
func (s *scheduler) run(ctx context.Context) {
	s.load()
	s.work.Go(func() { s.events.Run(ctx) })
	s.work.Go(func() { s.records.Run(ctx) })
	s.work.Go(func() { s.watch(ctx, gr.Nodes, s.onNode) })
	s.work.Go(func() { s.watch(ctx, gr.Pods, s.onPod) })
	for _, r := range s.reads {
		s.work.Go(func() { s.watch(ctx, r, func(ev client.Event) { s.onOtherResource(r, ev) }) })
	}
	s.loop(ctx)
	s.work.Wait()
}

// loop schedules Pods from the queue, one after the other.
func (s *scheduler) loop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		s.mu.Lock()
		e, pause := s.queue.Pop(time.Now())
		var info *framework.PodInfo
		if e != nil {
			info = e.Pod
		}
		s.mu.Unlock()
		s.events.SetBusy(e != nil)
		if e != nil {
			s.schedulePod(ctx, e, info)
			continue
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// isResponsibleFor reports whether the Pod names a profile of this scheduler.
func (s *scheduler) isResponsibleFor(pod *corev1.Pod) bool {
	return s.profiles[pod.Spec.SchedulerName] != nil
}
