package volume

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// workers write contents that have changed, each for one Pod at a time.
const workers = 4

// A volume that could not be made is tried again after the first of these, then twice as long, up to the second.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 2*time.Minute + 2*time.Second
)

// kept is what is known of the volumes of one Pod. All of it could be found out again.
type kept struct {
	changed chan struct{} // something that a volume needs has changed
	work    sync.Mutex    // held while somebody works on the volumes, which may take long

	// mu guards what is below, for moments.
	mu     sync.Mutex
	pod    *corev1.Pod
	ready  map[string]*mounted // by the name of the volume
	failed map[string]int      // how often in a row
	timer  *time.Timer
	stopIt context.CancelFunc // ends the work that is going on
	gone   bool
}

// keep finds what is known of a Pod, and notes how the Pod is now.
func (v *Volumes) keep(p *corev1.Pod) *kept {
	v.mu.Lock()
	defer v.mu.Unlock()
	k := v.pods[p.UID]
	if k == nil {
		k = &kept{changed: make(chan struct{}, 1), ready: map[string]*mounted{}, failed: map[string]int{}}
		v.pods[p.UID] = k
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pod = p
	return k
}

func (v *Volumes) known(uid types.UID) *kept {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pods[uid]
}

// now is the Pod as it is now, with what is ready of it.
func (k *kept) now() (p *corev1.Pod, ready map[string]*mounted, gone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pod, maps.Clone(k.ready), k.gone
}

// state is how far the volumes of a Pod are.
type state struct {
	// missing are the names of those that are not ready, detached of those that wait to be attached. All names are sorted.
	missing, detached []string
	// unknown are those of which it is not even known what they are, and why.
	unknown []string
	why     error
	// wait is how long to wait before the next attempt.
	wait time.Duration
}

var errGone = errors.New("the volumes of the Pod are being taken away")

// advance brings volumes of a Pod as far as they can be brought now, all at once.
func (v *Volumes) advance(ctx context.Context, k *kept, used []*corev1.Volume) (state, error) {
	k.work.Lock()
	defer k.work.Unlock()
	p, ready, gone := k.now()
	if gone {
		return state{}, errGone
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	k.begin(stop)
	defer k.begin(nil)
	results := make([]result, len(used))
	var all sync.WaitGroup
	for i, vol := range used {
		all.Go(func() { results[i] = v.bring(ctx, p, vol, ready[vol.Name]) })
	}
	all.Wait()
	s := k.note(used, results)
	for i := range results {
		if r := &results[i]; r.err != nil && !r.unknown && ctx.Err() == nil {
			v.Events.Event(p, "", corev1.EventTypeWarning, "FailedMount", "%s", r.err.Error())
		}
	}
	v.setAlarm(k, used, results)
	return s, nil
}

// begin notes how to end the work that begins.
func (k *kept) begin(stop context.CancelFunc) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopIt = stop; stop != nil && k.gone {
		stop()
	}
}

// note keeps what came of an attempt.
func (k *kept) note(used []*corev1.Volume, results []result) (s state) {
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
			s.wait = min(s.wait, backOff(k.failed[vol.Name]))
		}
	}
	slices.Sort(s.missing)
	slices.Sort(s.detached)
	slices.Sort(s.unknown)
	return s
}

// backOff is how long to wait after a number of failures in a row.
func backOff(failures int) time.Duration {
	d := firstRetry
	for range failures - 1 {
		if d *= 2; d >= lastRetry {
			return lastRetry
		}
	}
	return d
}

// sooner is the earlier of two times, of which none is later than any.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// setAlarm has the Pod looked at again when the first of its volumes needs it.
func (v *Volumes) setAlarm(k *kept, used []*corev1.Volume, results []result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var at time.Time
	for i, vol := range used {
		if r := &results[i]; r.err != nil && r.ready != nil {
			at = sooner(at, time.Now().Add(backOff(k.failed[vol.Name])))
		}
	}
	for _, m := range k.ready {
		if m.again.After(time.Now()) {
			at = sooner(at, m.again)
		}
	}
	k.stop()
	if at.IsZero() || k.gone {
		return
	}
	uid := k.pod.UID
	k.timer = time.AfterFunc(time.Until(at), func() { v.wake(uid) })
}

// stop stops the alarm. mu is held.
func (k *kept) stop() {
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
}

// wake has somebody look at the volumes of a Pod.
func (v *Volumes) wake(uid types.UID) {
	k := v.known(uid)
	if k == nil {
		return
	}
	select {
	case k.changed <- struct{}{}:
	default:
	}
	v.queue.add(uid)
}

// Wake has somebody look at the volumes of a Pod soon, because something that they are made from has changed.
func (v *Volumes) Wake(uid types.UID) { v.wake(uid) }

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
		k.stop()
		k.mu.Unlock()
	}
}

// refresh brings those volumes of a Pod up to date that are ready. Those that are not are Mount's.
func (v *Volumes) refresh(ctx context.Context, uid types.UID) {
	k := v.known(uid)
	if k == nil {
		return
	}
	p, ready, _ := k.now()
	var live []*corev1.Volume
	for _, vol := range usedVolumes(p) {
		if m := ready[vol.Name]; m != nil && m.live {
			live = append(live, vol)
		}
	}
	if len(live) == 0 {
		return
	}
	limit, stop := context.WithTimeout(ctx, patience)
	defer stop()
	if _, err := v.advance(limit, k, live); err != nil {
		v.Log.DebugContext(ctx, "volumes are not brought up to date", "pod", uid, "err", err)
	}
}

// containers are all containers of a Pod: init, main and ephemeral ones.
func containers(p *corev1.Pod) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for _, all := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range all {
				if !yield(&all[i]) {
					return
				}
			}
		}
		for i := range p.Spec.EphemeralContainers {
			c := corev1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(&c) {
				return
			}
		}
	}
}
