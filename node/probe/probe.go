// Package probe runs the startup, liveness and readiness probes of running containers, each with its own period, and
// combines their results to the health of a container. Nothing is stored: after a restart, the agent trusts the Pod's
// status about containers that still run until it has probed them again.
package probe

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/internal/wait"
	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/podstate"
	"proa.dev/node/podtrace"
)

// Runner runs commands in containers.
type Runner interface {
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (out []byte, code int, err error)
}

// Config is what a Prober needs.
type Config struct {
	Runner Runner
	Events event.Recorder
	// Changed is called when the health of a container of a Pod has changed. It must not block.
	Changed func(types.UID)
	// NodeIP returns the address of Pods that use the node's network.
	NodeIP func() netip.Addr
	// Trace records how long containers take until their probes succeed; it may be nil.
	Trace *podtrace.Recorder
	// Workers, if not nil, gets every goroutine, so that the owner can wait for them.
	Workers *sync.WaitGroup
}

// Prober probes the containers of a node.
type Prober struct {
	Config
	ctx     context.Context // of the agent: no probe outlives it
	since   time.Time
	http    *httpProber
	metrics *metrics

	mu   sync.Mutex // guards pods and everything below them
	pods map[types.UID]*probedPod
}

// New makes a prober whose probes end with ctx.
func New(ctx context.Context, config Config) *Prober {
	if config.Workers == nil {
		config.Workers = &sync.WaitGroup{}
	}
	return &Prober{Config: config, ctx: ctx, since: time.Now(), http: newHTTPProber(), metrics: newMetrics(),
		pods: map[types.UID]*probedPod{}}
}

// probedPod is a Pod that is probed.
type probedPod struct {
	pod *corev1.Pod
	ips []netip.Addr
	// ending reports that the Pod terminates: only its readiness is still probed.
	ending bool
	runs   map[string]*run // by the runtime's ID
}

// run is one run of a container.
type run struct {
	id     string
	spec   corev1.Container
	isInit bool
	began  time.Time
	// adopted reports that the container was started before this agent.
	adopted bool
	health  podstate.Health
	// started is closed when the startup probe, if any, has succeeded.
	started chan struct{}
	// probeReadiness makes the readiness probe run at once.
	probeReadiness wait.Signal
	// stop stops all probes, calm those that could stop the container (startup and liveness).
	stop, stopKilling context.CancelFunc
}

// Sync starts the probes of the Pod's running containers and stops those of others. While a Pod terminates, only
// readiness is probed.
func (b *Prober) Sync(p *corev1.Pod, f *fact.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.pods[p.UID]
	if s == nil {
		s = &probedPod{runs: map[string]*run{}}
		b.pods[p.UID] = s
	}
	s.pod, s.ips = p, f.IPs()
	running := map[string]bool{}
	for _, name := range containersOf(p) {
		c, found := f.Of(name.Name)
		if !found || c.State != fact.Running {
			continue
		}
		running[c.ID] = true
		if r := s.runs[c.ID]; r != nil {
			r.probeNow()
			continue
		}
		s.runs[c.ID] = b.begin(s, name, c)
	}
	for id, r := range s.runs {
		if !running[id] {
			r.stop()
			delete(s.runs, id)
		}
	}
	if p.DeletionTimestamp != nil || s.ending {
		s.end()
	}
}

// containerOf is a container with its kind.
type containerOf struct {
	corev1.Container
	isInit bool
}

func containersOf(p *corev1.Pod) (out []containerOf) {
	for _, c := range p.Spec.InitContainers {
		out = append(out, containerOf{c, true})
	}
	for _, c := range p.Spec.Containers {
		out = append(out, containerOf{c, false})
	}
	for _, c := range p.Spec.EphemeralContainers {
		out = append(out, containerOf{corev1.Container(c.EphemeralContainerCommon), false})
	}
	return out
}

// probeNow runs the readiness probe of a container that is not ready at once: something about its Pod has changed.
func (r *run) probeNow() {
	if !r.health.Started || r.health.Ready || r.spec.ReadinessProbe == nil {
		return
	}
	r.probeReadiness.Send()
}

// begin starts the probes of a run of a container. Init containers that are not sidecars have none.
func (b *Prober) begin(s *probedPod, c containerOf, have *fact.Container) *run {
	r := &run{
		id: have.ID, spec: c.Container, isInit: c.isInit, began: have.Started, adopted: have.Started.Before(b.since),
		started: make(chan struct{}), probeReadiness: wait.NewSignal(),
	}
	r.health = initialHealth(s.pod, have.ID, &c.Container, r.adopted)
	if r.health.Started {
		close(r.started)
	}
	var all, ending context.Context
	all, r.stop = context.WithCancel(b.ctx)
	ending, r.stopKilling = context.WithCancel(all)
	if !r.health.Started {
		b.start(ending, s, r, startup, c.StartupProbe)
	}
	b.start(ending, s, r, liveness, c.LivenessProbe)
	b.start(all, s, r, readiness, c.ReadinessProbe)
	return r
}

func (b *Prober) start(ctx context.Context, s *probedPod, r *run, k kind, spec *corev1.Probe) {
	if spec == nil {
		return
	}
	w := &worker{Prober: b, of: s, run: r, kind: k, spec: spec.DeepCopy()}
	setDefaults(w.spec)
	if r.adopted {
		// An agent that starts finds many containers at once; their probes are spread over a period.
		w.jitter = wait.Jitter(w.period())
	}
	b.Workers.Go(func() { w.loop(ctx) })
}

// initialHealth returns the health of a run before its first probe. For a run that is older than the agent, the Pod's status
// is trusted, so that a restart of the agent makes no Pod unready.
func initialHealth(p *corev1.Pod, id string, c *corev1.Container, adopted bool) podstate.Health {
	h := podstate.Health{Started: c.StartupProbe == nil, Ready: c.StartupProbe == nil && c.ReadinessProbe == nil}
	if !adopted {
		return h
	}
	for _, st := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if st.Name != c.Name || bareID(st.ContainerID) != id {
			continue
		}
		h.Started = h.Started || st.Started != nil && *st.Started
		h.Ready = h.Ready || h.Started && (st.Ready || c.ReadinessProbe == nil)
	}
	return h
}

// Of returns the health of one run of a container. An unknown run is neither started nor ready.
func (b *Prober) Of(uid types.UID, containerID string) podstate.Health {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.pods[uid]; s != nil {
		if r := s.runs[bareID(containerID)]; r != nil {
			return r.health
		}
	}
	return podstate.Health{}
}

// Terminating stops all probes of a Pod except readiness probes, for Pods that terminate without having been deleted.
func (b *Prober) Terminating(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.pods[uid]; s != nil {
		s.end()
	}
}

// end makes sure that no probe stops a container that is terminating anyway.
func (s *probedPod) end() {
	s.ending = true
	for _, r := range s.runs {
		r.stopKilling()
		r.health.Failed = nil
		if !r.health.Started {
			r.start()
		}
	}
}

// start records that the container has started, which lets the other probes begin.
func (r *run) start() {
	r.health.Started = true
	r.health.Ready = r.health.Ready || r.spec.ReadinessProbe == nil
	close(r.started)
}

// Forget stops all probes of a Pod.
func (b *Prober) Forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.pods[uid]; s != nil {
		for _, r := range s.runs {
			r.stop()
		}
		delete(b.pods, uid)
		b.metrics.forget(s.pod)
	}
}
