// Package probe asks running containers how they are. A container may have a startup, a liveness and a readiness probe; each
// is asked in its own rhythm while the container runs, and what they say together is its health. Nothing of it is kept: an
// agent that was killed believes what the Pod's status says of the same run of a container until it has asked again.
package probe

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/pod"
)

// Runner runs commands in containers.
type Runner interface {
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (out []byte, code int, err error)
}

// Config is what probes need of the agent.
type Config struct {
	Runner Runner
	Events event.Recorder
	// Changed is called when the health of a container of a Pod has changed. It must not wait.
	Changed func(types.UID)
	// Host is the address of Pods that use the node's network.
	Host func() netip.Addr
	// Workers, if not nil, is told of every goroutine, so that an owner can wait for them.
	Workers *sync.WaitGroup
}

// Prober probes the containers of a node.
type Prober struct {
	Config
	life    context.Context // of the agent: no probe outlives it
	since   time.Time
	web     *web
	numbers *numbers

	mu   sync.Mutex // guards pods and everything below them
	pods map[types.UID]*subject
}

// New makes a prober whose probes end with ctx.
func New(ctx context.Context, config Config) *Prober {
	if config.Workers == nil {
		config.Workers = &sync.WaitGroup{}
	}
	return &Prober{Config: config, life: ctx, since: time.Now(), web: newWeb(), numbers: newNumbers(), pods: map[types.UID]*subject{}}
}

// subject is a Pod that is probed.
type subject struct {
	pod *corev1.Pod
	ips []netip.Addr
	// ending says that the Pod terminates: only its readiness is still of interest.
	ending bool
	runs   map[string]*run // by the runtime's ID
}

// run is one run of a container.
type run struct {
	id     string
	spec   corev1.Container
	isInit bool
	began  time.Time
	// adopted says that the container ran before this agent did.
	adopted bool
	health  pod.Health
	// started is closed when the startup probe, if there is one, is done.
	started chan struct{}
	// again asks the readiness probe out of turn.
	again chan struct{}
	// stop ends all probes, calm those that could end the container.
	stop, calm context.CancelFunc
}

// Sync probes the containers of a Pod that run, and no others. While a Pod terminates only readiness is asked for.
func (b *Prober) Sync(p *corev1.Pod, f *fact.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.pods[p.UID]
	if s == nil {
		s = &subject{runs: map[string]*run{}}
		b.pods[p.UID] = s
	}
	s.pod, s.ips = p, f.IPs()
	running := map[string]bool{}
	for _, name := range names(p) {
		c, found := f.Of(name.Name)
		if !found || c.State != fact.Running {
			continue
		}
		running[c.ID] = true
		if r := s.runs[c.ID]; r != nil {
			r.nudge()
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

// named is a container with what kind it is.
type named struct {
	corev1.Container
	isInit bool
}

func names(p *corev1.Pod) (out []named) {
	for _, c := range p.Spec.InitContainers {
		out = append(out, named{c, true})
	}
	for _, c := range p.Spec.Containers {
		out = append(out, named{c, false})
	}
	for _, c := range p.Spec.EphemeralContainers {
		out = append(out, named{corev1.Container(c.EphemeralContainerCommon), false})
	}
	return out
}

// nudge asks a container that is not ready yet again now: something about its Pod has changed.
func (r *run) nudge() {
	if !r.health.Started || r.health.Ready || r.spec.ReadinessProbe == nil {
		return
	}
	select {
	case r.again <- struct{}{}:
	default:
	}
}

// begin starts the probes of a run of a container. Init containers that are not sidecars have none.
func (b *Prober) begin(s *subject, c named, have *fact.Container) *run {
	r := &run{
		id: have.ID, spec: c.Container, isInit: c.isInit, began: have.Started, adopted: have.Started.Before(b.since),
		started: make(chan struct{}), again: make(chan struct{}, 1),
	}
	r.health = before(s.pod, have.ID, &c.Container, r.adopted)
	if r.health.Started {
		close(r.started)
	}
	var all, ending context.Context
	all, r.stop = context.WithCancel(b.life)
	ending, r.calm = context.WithCancel(all)
	if !r.health.Started {
		b.start(ending, s, r, startup, c.StartupProbe)
	}
	b.start(ending, s, r, liveness, c.LivenessProbe)
	b.start(all, s, r, readiness, c.ReadinessProbe)
	return r
}

func (b *Prober) start(ctx context.Context, s *subject, r *run, k sort, spec *corev1.Probe) {
	if spec == nil {
		return
	}
	w := &worker{Prober: b, of: s, run: r, sort: k, spec: spec.DeepCopy()}
	fill(w.spec)
	if r.adopted {
		// An agent that starts finds many containers at once; their probes are spread.
		w.jitter = time.Duration(rand.Float64() * float64(w.period())) //nolint:gosec // it spreads work and hides nothing
	}
	b.Workers.Go(func() { w.loop(ctx) })
}

// before is the health of a run before its first probe. Of a run that is older than the agent the Pod's status is believed, so
// that a restart of the agent makes no Pod unready.
func before(p *corev1.Pod, id string, c *corev1.Container, adopted bool) pod.Health {
	h := pod.Health{Started: c.StartupProbe == nil, Ready: c.StartupProbe == nil && c.ReadinessProbe == nil}
	if !adopted {
		return h
	}
	for _, st := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if st.Name != c.Name || bare(st.ContainerID) != id {
			continue
		}
		h.Started = h.Started || st.Started != nil && *st.Started
		h.Ready = h.Ready || h.Started && (st.Ready || c.ReadinessProbe == nil)
	}
	return h
}

// Of is what the probes of one run of a container say. A run that nobody knows is neither started nor ready.
func (b *Prober) Of(uid types.UID, containerID string) pod.Health {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.pods[uid]; s != nil {
		if r := s.runs[bare(containerID)]; r != nil {
			return r.health
		}
	}
	return pod.Health{}
}

// Terminating ends the probes of a Pod but for those of its readiness, for Pods that end without being deleted.
func (b *Prober) Terminating(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.pods[uid]; s != nil {
		s.end()
	}
}

// end makes sure that no probe ends a container that ends anyway.
func (s *subject) end() {
	s.ending = true
	for _, r := range s.runs {
		r.calm()
		r.health.Failed = nil
		if !r.health.Started {
			r.start()
		}
	}
}

// start notes that the container has started, which lets the other probes begin.
func (r *run) start() {
	r.health.Started = true
	r.health.Ready = r.health.Ready || r.spec.ReadinessProbe == nil
	close(r.started)
}

// Forget ends all probes of a Pod.
func (b *Prober) Forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.pods[uid]; s != nil {
		for _, r := range s.runs {
			r.stop()
		}
		delete(b.pods, uid)
		b.numbers.forget(s.pod)
	}
}
