// Package pod is the heart of hop 11: it makes the Pods of a node run. One worker a Pod looks at what the runtime has,
// decides what is missing (plan.go, which is pure), and does it; what it sees becomes the Pod's status (status.go, pure as well).
// The runtime's events wake the workers, and a slow look at everything catches what an event did not say.
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

	"proa.dev/node/cri"
	"proa.dev/node/event"
	"proa.dev/node/fact"
	"proa.dev/node/interruption"
)

type addresses = []netip.Addr

// Statuses brings the status of Pods to the API.
type Statuses interface {
	// Write stores a status, and returns the Pod as it is then. A Pod that has changed in between is a conflict.
	Write(ctx context.Context, p *corev1.Pod, st *corev1.PodStatus) (*corev1.Pod, error)
	// Delete takes a Pod out of the API that was deleted and has ended. That it is gone already is no error.
	Delete(ctx context.Context, p *corev1.Pod) error
}

// Config is what a Manager works with.
type Config struct {
	Client   *cri.Client
	Runtime  string // the runtime's name for itself
	Images   Images
	Volumes  Volumes
	Maker    Maker
	Cgroups  Cgroups
	Probes   Probes
	Hooks    Hooks
	Events   event.Recorder
	Statuses Statuses
	// Devices gives Pods devices of plugins and the like; nil for none.
	Devices Devices
	// Network says why Pods cannot have a network now; nil where nobody knows.
	Network func(ctx context.Context) error
	// Said reads what a container that ended has left to say.
	Said func(*cri.ContainerStatus) string
	// Shorten keeps what a status quotes of containers within bounds; nil leaves it as it is.
	Shorten func(p *corev1.Pod, st *corev1.PodStatus)
	// Expand replaces $(NAME) in a path by what an environment says.
	Expand func(text string, env []*cri.KeyValue) (string, error)
	// Fits says whether the node has what a running Pod asks for now, beside what it has; nil says that it always does.
	Fits func(p, has *corev1.Pod) Fit
	// HostIPs are the addresses of the node.
	HostIPs func() []netip.Addr
	// Logs is the folder of the logs of all Pods.
	Logs string
	// Interruptions records which containers were stopped because the node stops.
	Interruptions interruption.Records
	// Booted is when the machine started; zero where nobody knows.
	Booted time.Time
	// Spent hears how long the steps of a Pod's start took: volumes, sandbox, image, container. It may be nil.
	Spent func(p *corev1.Pod, step string, begin time.Time)
	// Freed is called when a Pod has given back what it used.
	Freed func()
	Log   *slog.Logger
	// Retry is the first pause after something failed, Relist that between looks at everything.
	Retry, Relist time.Duration
}

// Manager has the workers of the node.
type Manager struct {
	Config
	work sync.WaitGroup

	mu      sync.Mutex // guards what follows
	workers map[types.UID]*worker
	ctx     context.Context
	seen    bool // the sources have told all they have
	hold    bool // new Pods wait
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

// Run follows the runtime until ctx ends, and returns when no work is under way any more. Containers keep running.
func (m *Manager) Run(ctx context.Context) {
	m.mu.Lock()
	m.ctx = ctx
	for _, w := range m.workers {
		m.begin(w)
	}
	m.mu.Unlock()
	m.work.Go(func() { m.follow(ctx) })
	tick := time.NewTicker(m.Relist)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			m.Relook(ctx)
		}
	}
	m.work.Wait()
}

// begin starts a worker.
func (m *Manager) begin(w *worker) {
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
		for _, next := range m.workers {
			if sameName(next, w) {
				next.poke() // it may have waited
			}
		}
	})
}

// Update says that a Pod is on this node, or has changed. A verdict that is not nil says that it must not run.
func (m *Manager) Update(p *corev1.Pod, v *Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.workers[p.UID]
	if w == nil {
		w = m.newWorker(p)
		w.verdict = v
		if m.hold {
			w.order = &stopOrder{}
		}
		m.workers[p.UID] = w
		w.poke()
		m.begin(w)
		return
	}
	w.update(p)
}

// follows says whether a static Pod has to wait: one of that name, which is in no source any more, is still here. It is the
// same file, and so the same ports and folders.
func (m *Manager) follows(w *worker, p *corev1.Pod) bool {
	if !fact.Static(p) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, x := range m.workers {
		if x != w && sameName(x, w) && x.left() {
			return true
		}
	}
	return false
}

func sameName(a, b *worker) bool { return a.name == b.name }

func (m *Manager) newWorker(p *corev1.Pod) *worker {
	return &worker{
		m: m, log: m.Log.With("pod", p.Namespace+"/"+p.Name), pod: p, name: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, eye: eye{runtime: m.Client, said: m.Said},
		wake: make(chan struct{}, 1), quit: make(chan struct{}),
		images: map[string]*image{}, busy: map[string]context.CancelFunc{}, waiting: map[string]fact.Waiting{}, hold: map[string]time.Time{},
		fails: map[string]int{}, unpulled: map[string]bool{}, backoffs: backoffs{}, told: map[string]time.Time{},
	}
}

// Gone says that a Pod is no longer on this node.
func (m *Manager) Gone(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workers[uid]; w != nil {
		w.leave()
	}
}

// End ends a Pod as failed.
func (m *Manager) End(uid types.UID, v *Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workers[uid]; w != nil {
		w.judge(v)
	}
}

// Wake makes the worker of a Pod look.
func (m *Manager) Wake(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workers[uid]; w != nil {
		w.poke()
	}
}

// Again makes the worker of a Pod try again at once what has failed: what it lacked may be there now.
func (m *Manager) Again(uid types.UID) {
	m.mu.Lock()
	w := m.workers[uid]
	m.mu.Unlock()
	if w != nil {
		w.report(func() {
			clear(w.hold)
			w.retryAt = time.Time{}
		})
	}
}

// Pods are the Pods of the node, with what the runtime had of them at the last look; nil before the first.
func (m *Manager) Pods() (out []Local) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.workers {
		w.mu.Lock()
		out = append(out, Local{Pod: w.pod, Facts: w.last, Ended: w.verdict != nil, Gone: w.gone})
		w.mu.Unlock()
	}
	return out
}

// Find returns a Pod of the node with what the runtime had of it.
func (m *Manager) Find(uid types.UID) (Local, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.workers[uid]
	if w == nil {
		return Local{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return Local{Pod: w.pod, Facts: w.last, Ended: w.verdict != nil, Gone: w.gone}, true
}

// Local is a Pod and what the runtime has of it.
type Local struct {
	Pod   *corev1.Pod
	Facts *fact.Pod
	// Ended says that the Pod has been ended here, or shall be.
	Ended bool
	// Gone says that it is in no source any more.
	Gone bool
}

// LogDir is the folder of a Pod's logs.
func (m *Manager) LogDir(p *corev1.Pod) string {
	return filepath.Join(m.Logs, p.Namespace+"_"+p.Name+"_"+string(p.UID))
}

// release gives back what a Pod has of the node.
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

// forget removes a log and its rotated parts.
func (m *Manager) forget(log string) {
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

// erase removes the folders of a Pod.
func (m *Manager) erase(ctx context.Context, p *corev1.Pod) error {
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

// Complete says that the sources have told of every Pod: what else is here belongs to nobody.
func (m *Manager) Complete(ctx context.Context) {
	m.mu.Lock()
	m.seen = true
	m.mu.Unlock()
	m.Relook(ctx)
}

// orphan makes a worker for a Pod that is in no source, so that it is taken away like any other.
func (m *Manager) orphan(uid types.UID, namespace, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.workers[uid] != nil || !m.seen {
		return
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: namespace, Name: name}}
	w := m.newWorker(p)
	w.gone = true
	m.workers[uid] = w
	w.poke()
	m.begin(w)
}
