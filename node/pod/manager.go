// Package pod makes the Pods of a node run. Each Pod has a worker, which observes what the runtime has of the Pod,
// computes with package podstate what is to be done, starts that work, and writes the Pod's status. Events of the
// runtime wake the workers, and a periodic resync makes up for events that were missed.
package pod

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/internal/wait"
	"proa.dev/node/agentmetrics"
	"proa.dev/node/cri"
	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/interruption"
	"proa.dev/node/podstate"
	"proa.dev/node/podtrace"
)

// Statuses writes the status of Pods to the API.
type Statuses interface {
	// Write stores a status, and returns the Pod as the API then has it. If the Pod has changed in between, it fails
	// with a conflict.
	Write(ctx context.Context, p *corev1.Pod, st *corev1.PodStatus) (*corev1.Pod, error)
	// Delete removes a Pod from the API that was deleted and has terminated. It is no error if the Pod does not exist.
	Delete(ctx context.Context, p *corev1.Pod) error
}

// Config is what a Manager needs.
type Config struct {
	Client   *cri.Client
	Runtime  string // as the runtime calls itself
	Images   Images
	Volumes  Volumes
	Maker    Maker
	Cgroups  Cgroups
	Probes   Probes
	Hooks    Hooks
	Events   event.Recorder
	Statuses Statuses
	// Devices allocates devices, CPUs and memory to Pods; nil for none.
	Devices Devices
	// Network returns why Pods cannot get a network now; it may be nil.
	Network func(ctx context.Context) error
	// TerminationMessage reads the termination message of a container.
	TerminationMessage func(*cri.ContainerStatus) string
	// TruncateMessages limits the length of termination messages in a status; nil leaves them as they are.
	TruncateMessages func(p *corev1.Pod, st *corev1.PodStatus)
	// PathExpander returns a function that replaces $(NAME) in a path by variables of an environment.
	PathExpander func(env []*cri.KeyValue) func(path string) (string, error)
	// CheckResize decides whether a running Pod can be resized from has to p; nil allows every resize.
	CheckResize func(p, has *corev1.Pod) Fit
	// HostIPs returns the addresses of the node.
	HostIPs func() []netip.Addr
	// Logs is the folder of the logs of all Pods.
	Logs string
	// Interruptions records which containers were stopped because the node was stopped.
	Interruptions interruption.Records
	// BootTime is when the machine booted; zero if unknown.
	BootTime time.Time
	// Trace records how long the work on the start of a Pod takes: volumes, sandbox, images, containers. It may be nil.
	Trace *podtrace.Recorder
	// Suspects finds out which Pod kills the agent; nil suspects nobody.
	Suspects *Suspects
	// Freed is called when a Pod has released what it used; it may be nil.
	Freed func()
	// Metrics counts starts and ends of Pods and containers; it may be nil.
	Metrics *agentmetrics.Metrics
	Log     *slog.Logger
	// Retry is the first back-off after a failure, Relist the period of the resync.
	Retry, Relist time.Duration
}

// Manager owns the workers of the node.
type Manager struct {
	Config
	work sync.WaitGroup

	mu              sync.Mutex // guards what follows
	workers         map[types.UID]*worker
	ctx             context.Context
	sourcesComplete bool // the sources have listed all their Pods
	hold            bool // new Pods are not started
}

// New makes a manager.
func New(c Config) *Manager {
	if c.Retry == 0 {
		c.Retry = 500 * time.Millisecond
	}
	if c.Relist == 0 {
		c.Relist = 5 * time.Minute
	}
	return &Manager{Config: c, workers: map[types.UID]*worker{}}
}

// Run runs the workers until ctx ends, and returns when no work is under way any more. Containers keep running.
func (m *Manager) Run(ctx context.Context) {
	m.mu.Lock()
	m.ctx = ctx
	for _, w := range m.workers {
		m.startWorker(w)
	}
	m.mu.Unlock()
	m.work.Go(func() { m.followRuntimeEvents(ctx) })
	tick := time.NewTicker(m.Relist)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			m.Resync(ctx)
		}
	}
	m.work.Wait()
}

// startWorker starts the goroutine of a worker.
func (m *Manager) startWorker(w *worker) {
	if m.ctx == nil || m.ctx.Err() != nil {
		return
	}
	ctx := m.ctx
	m.work.Go(func() {
		w.run(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		delete(m.workers, w.pod.UID)
		m.Suspects.Forget(w.pod.UID)
		m.Metrics.ForgetPod(w.pod.UID)
		for _, next := range m.workers {
			if haveSameName(next, w) {
				next.wake.Send() // it may have waited for the name
			}
		}
	})
}

// Update adds a Pod to this node, or gives its worker the new version. A new Pod with a termination must not run.
func (m *Manager) Update(p *corev1.Pod, v *podstate.Termination) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.workers[p.UID]
	if w == nil {
		w = m.newWorker(p)
		w.termination = v
		if m.hold {
			w.order = &stopOrder{}
		}
		m.workers[p.UID] = w
		m.Metrics.PodObserved(p, nil, time.Now())
		w.wake.Send()
		m.startWorker(w)
		return
	}
	m.Metrics.PodObserved(p, w.lastFacts(), time.Now())
	w.update(p)
}

// mustWaitForName reports whether a static Pod must wait because an earlier Pod of its name, which is in no source any more,
// still terminates. Both come from the same manifest, and so have the same ports and folders.
func (m *Manager) mustWaitForName(w *worker, p *corev1.Pod) bool {
	if !fact.Static(p) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range m.workers {
		if x != w && haveSameName(x, w) && x.isRemoved() {
			return true
		}
	}
	return false
}

func haveSameName(a, b *worker) bool { return a.name == b.name }

func (m *Manager) newWorker(p *corev1.Pod) *worker {
	return &worker{
		m: m, log: m.Log.With("pod", p.Namespace+"/"+p.Name), pod: p, uid: p.UID,
		name:     types.NamespacedName{Namespace: p.Namespace, Name: p.Name},
		observer: observer{runtime: m.Client, terminationMessage: m.TerminationMessage},
		wake:     wait.NewSignal(), quit: make(chan struct{}),
		images: map[string]*image{}, busy: map[string]context.CancelFunc{}, waiting: map[string]fact.Waiting{},
		startNotBefore: map[string]time.Time{},
		fails:          map[string]int{}, pullFailed: map[string]bool{}, backoffs: backoffs{}, backoffRecorded: map[string]time.Time{},
		recorder: m.Metrics.NewPodRecorder(time.Now()), traced: podtrace.Works{},
	}
}

// SourceRemoved tells the worker of a Pod that the Pod has disappeared from its source.
func (m *Manager) SourceRemoved(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workers[uid]; w != nil {
		w.sourceRemoved()
	}
}

// End ends a Pod as failed.
func (m *Manager) End(uid types.UID, v *podstate.Termination) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workers[uid]; w != nil {
		w.terminate(v)
	}
}

// Wake makes the worker of a Pod reconcile.
func (m *Manager) Wake(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workers[uid]; w != nil {
		w.wake.Send()
	}
}

// RetryNow makes the worker of a Pod retry at once what has failed: what was missing may exist now.
func (m *Manager) RetryNow(uid types.UID) {
	m.mu.Lock()
	w := m.workers[uid]
	m.mu.Unlock()
	if w != nil {
		w.deliver(func() {
			clear(w.startNotBefore)
			w.retryAt = time.Time{}
		})
	}
}

// Pods returns the Pods of the node with the facts that were last observed; the facts are nil before the first
// observation.
func (m *Manager) Pods() (out []Local) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.workers {
		w.mu.Lock()
		out = append(out, Local{Pod: w.pod, Facts: w.last, Ended: w.termination != nil, Removed: w.removed})
		w.mu.Unlock()
	}
	return out
}

// Find returns a Pod of the node with the facts that were last observed.
func (m *Manager) Find(uid types.UID) (Local, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.workers[uid]
	if w == nil {
		return Local{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return Local{Pod: w.pod, Facts: w.last, Ended: w.termination != nil, Removed: w.removed}, true
}

// Local is a Pod of the node and what the runtime has of it.
type Local struct {
	Pod   *corev1.Pod
	Facts *fact.Pod
	// Ended reports that the Pod has been ended by this node, or will be.
	Ended bool
	// Removed reports that the Pod is in no source any more.
	Removed bool
}

// LogDir returns the folder of a Pod's logs.
func (m *Manager) LogDir(p *corev1.Pod) string {
	return filepath.Join(m.Logs, p.Namespace+"_"+p.Name+"_"+string(p.UID))
}

// release removes the volumes and the cgroup of a Pod.
func (m *Manager) release(ctx context.Context, uid types.UID) error {
	if err := m.Volumes.Unmount(ctx, uid); err != nil {
		return err
	}
	return m.Cgroups.Remove(uid)
}

func (m *Manager) freed() {
	if m.Freed != nil {
		m.Freed()
	}
}

// removeLogs removes a log and its rotated files.
func (m *Manager) removeLogs(log string) {
	if log == "" {
		return
	}
	names, err := filepath.Glob(log + "*")
	if err != nil {
		return
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			m.Log.Debug("a log could not be removed", "log", name, "err", err)
		}
	}
}

// removeFolders removes the folders of a Pod.
func (m *Manager) removeFolders(ctx context.Context, p *corev1.Pod) error {
	if err := m.release(ctx, p.UID); err != nil {
		return err
	}
	if err := m.Volumes.Remove(ctx, p.UID); err != nil {
		return err
	}
	if err := os.RemoveAll(m.LogDir(p)); err != nil {
		return fmt.Errorf("remove the logs: %w", err)
	}
	return m.Interruptions.Remove(p.UID)
}

// SourcesComplete is called when the sources have listed all their Pods: whatever else is on the node is an orphan.
func (m *Manager) SourcesComplete(ctx context.Context) {
	m.mu.Lock()
	m.sourcesComplete = true
	m.mu.Unlock()
	m.Resync(ctx)
}

// addOrphan makes a worker for a Pod that is in no source, so that it is removed like any other.
func (m *Manager) addOrphan(uid types.UID, namespace, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.workers[uid] != nil || !m.sourcesComplete {
		return
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: namespace, Name: name}}
	w := m.newWorker(p)
	w.removed = true
	m.workers[uid] = w
	w.wake.Send()
	m.startWorker(w)
}
