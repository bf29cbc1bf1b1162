package volume

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/internal/wait"
	"proa.dev/node/event"
)

// workers is how many Pods have their volumes refreshed at a time.
const workers = 4

// The back-off of a volume that could not be mounted.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 2*time.Minute + 2*time.Second
)

// podVolumes is the state of the volumes of one Pod. It is only a cache: all of it can be found out again.
type podVolumes struct {
	changed wait.Signal // something that a volume needs has changed
	work    sync.Mutex  // held while a goroutine works on the volumes, which may take long

	// mu guards what is below; it is never held while work goes on.
	mu        sync.Mutex
	pod       *corev1.Pod
	ready     map[string]*mounted // by the name of the volume
	failed    map[string]int      // failures in a row, by the name of the volume
	timer     *time.Timer
	cancel    context.CancelFunc // cancels the work that is going on
	unmounted bool
}

// volumesFor returns the volumes of a Pod, and stores the newest version of the Pod.
func (v *Volumes) volumesFor(p *corev1.Pod) *podVolumes {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.pods[p.UID]
	if k == nil {
		k = &podVolumes{changed: wait.NewSignal(), ready: map[string]*mounted{}, failed: map[string]int{}}
		v.pods[p.UID] = k
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pod = p
	return k
}

func (v *Volumes) find(uid types.UID) *podVolumes {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pods[uid]
}

// current returns the Pod and those of its volumes that are ready.
func (k *podVolumes) current() (p *corev1.Pod, ready map[string]*mounted, unmounted bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pod, maps.Clone(k.ready), k.unmounted
}

// state says how far the volumes of a Pod are.
type state struct {
	// missing are the names of volumes that are not ready, detached of those that wait to be attached. All names are
	// sorted.
	missing, detached []string
	// unknown are the volumes whose claim could not be resolved, why is the reason.
	unknown []string
	why     error
	// wait is the back-off before the next attempt.
	wait time.Duration
}

var errUnmounted = errors.New("the volumes of the Pod are being taken away")

// mountAll mounts or refreshes volumes of a Pod, all of them concurrently.
func (v *Volumes) mountAll(ctx context.Context, k *podVolumes, used []*corev1.Volume) (state, error) {
	k.work.Lock()
	defer k.work.Unlock()
	p, ready, unmounted := k.current()
	if unmounted {
		return state{}, errUnmounted
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	k.setCancel(stop)
	defer k.setCancel(nil)
	results := make([]result, len(used))
	var all sync.WaitGroup
	free := make(chan struct{}, mountsAtATime)
	for i, vol := range used {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			results[i] = v.mountAndRecord(ctx, p, vol, ready[vol.Name])
		})
	}
	all.Wait()
	s := k.recordResults(used, results)
	for i := range results {
		if r := &results[i]; r.err != nil && !r.unknown && ctx.Err() == nil {
			v.Events.Event(event.Pod(p), corev1.EventTypeWarning, "FailedMount", "%s", r.err.Error())
		}
	}
	v.scheduleRefresh(k, used, results)
	return s, nil
}

// setCancel stores how to cancel the work that begins; nil when it has ended.
func (k *podVolumes) setCancel(stop context.CancelFunc) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cancel = stop; stop != nil && k.unmounted {
		stop()
	}
}

// recordResults stores the results of an attempt.
func (k *podVolumes) recordResults(used []*corev1.Volume, results []result) (s state) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.wait = lastRetry
	for i, vol := range used {
		r := results[i]
		if r.ready != nil {
			k.ready[vol.Name] = r.ready
		}
		if r.err == nil {
			delete(k.failed, vol.Name)
			continue
		}
		k.failed[vol.Name]++
		if r.unknown {
			s.unknown, s.why = append(s.unknown, vol.Name), join(s.why, r.err)
		}
		if r.waits {
			s.detached = append(s.detached, vol.Name)
		}
		if r.ready == nil {
			s.missing = append(s.missing, vol.Name)
			s.wait = min(s.wait, retryDelay(k.failed[vol.Name]))
		}
	}
	slices.Sort(s.missing)
	slices.Sort(s.detached)
	slices.Sort(s.unknown)
	return s
}

// retryDelay returns the pause after a number of failures in a row.
func retryDelay(failures int) time.Duration {
	d := firstRetry
	for range failures - 1 {
		if d *= 2; d >= lastRetry {
			return lastRetry
		}
	}
	return d
}

// earlier returns the earlier of two times; the zero time counts as never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// scheduleRefresh schedules the next refresh of the Pod's volumes, for the first volume that needs one.
func (v *Volumes) scheduleRefresh(k *podVolumes, used []*corev1.Volume, results []result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var at time.Time
	for i, vol := range used {
		if r := &results[i]; r.err != nil && r.ready != nil {
			at = earlier(at, time.Now().Add(retryDelay(k.failed[vol.Name])))
		}
	}
	for _, m := range k.ready {
		if m.refreshAt.After(time.Now()) {
			at = earlier(at, m.refreshAt)
		}
	}
	k.stopTimer()
	if at.IsZero() || k.unmounted {
		return
	}
	uid := k.pod.UID
	k.timer = time.AfterFunc(time.Until(at), func() { v.Wake(uid) })
}

// stopTimer stops the timer. mu is held.
func (k *podVolumes) stopTimer() {
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
}

// Wake refreshes the volumes of a Pod soon, because an object that they are made from has changed.
func (v *Volumes) Wake(uid types.UID) {
	k := v.find(uid)
	if k == nil {
		return
	}
	k.changed.Send()
	v.queue.add(uid)
}

// Run keeps the contents of volumes up to date until ctx ends.
func (v *Volumes) Run(ctx context.Context) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				uid, ok := v.queue.next(ctx)
				if !ok {
					return
				}
				v.refresh(ctx, uid)
			}
		})
	}
	all.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, k := range v.pods {
		k.mu.Lock()
		k.stopTimer()
		k.mu.Unlock()
	}
}

// refresh updates those volumes of a Pod that are ready. Volumes that are not ready are left to Mount.
func (v *Volumes) refresh(ctx context.Context, uid types.UID) {
	k := v.find(uid)
	if k == nil {
		return
	}
	p, ready, _ := k.current()
	var live []*corev1.Volume
	for _, vol := range usedVolumes(p) {
		if m := ready[vol.Name]; m != nil && m.live {
			live = append(live, vol)
		}
	}
	if len(live) == 0 {
		return
	}
	limit, stop := context.WithTimeout(ctx, mountTimeout)
	defer stop()
	if _, err := v.mountAll(limit, k, live); err != nil {
		v.Log.DebugContext(ctx, "volumes are not refreshed", "pod", uid, "err", err)
	}
}
