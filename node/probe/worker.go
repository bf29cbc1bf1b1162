package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/hop"
	"proa.dev/internal/wait"
	"proa.dev/node/event"
	"proa.dev/node/podstate"
	"proa.dev/node/podtrace"
)

// kind is the kind of a probe, as Events name it.
type kind string

const (
	startup   kind = "Startup"
	liveness  kind = "Liveness"
	readiness kind = "Readiness"
)

// maxAttempts is how often a probe is attempted before its error counts.
const maxAttempts = 3

// worker runs one probe of one run of a container until its context ends.
type worker struct {
	*Prober
	of     *probedPod
	run    *run
	kind   kind
	spec   *corev1.Probe
	jitter time.Duration
	tally  tally
	traced *podtrace.Work // until the first success; nil if that is not recorded
}

// setDefaults sets the defaults of the API.
func setDefaults(p *corev1.Probe) {
	p.TimeoutSeconds = cmp.Or(p.TimeoutSeconds, 1)
	p.PeriodSeconds = cmp.Or(p.PeriodSeconds, 10)
	p.SuccessThreshold = cmp.Or(p.SuccessThreshold, 1)
	p.FailureThreshold = cmp.Or(p.FailureThreshold, 3)
}

func (w *worker) period() time.Duration { return time.Duration(w.spec.PeriodSeconds) * time.Second }

func (w *worker) loop(ctx context.Context) {
	if w.kind != startup {
		select {
		case <-ctx.Done():
			return
		case <-w.run.started:
		}
	}
	w.beginTrace()
	defer func() { w.traced.Abort("the container ended before its " + w.traceName() + " probe succeeded") }()
	delay := time.Until(w.run.began.Add(time.Duration(w.spec.InitialDelaySeconds) * time.Second))
	if wait.Sleep(ctx, max(delay, w.jitter)) != nil {
		return
	}
	tick := time.NewTicker(w.period())
	defer tick.Stop()
	again := w.run.probeReadiness
	if w.kind != readiness {
		again = nil
	}
	for w.once(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-again:
			tick.Reset(w.period())
		}
	}
}

// beginTrace begins the record of the time until the first success: from the start of the container or, if there is a startup
// probe, from its success on. Liveness probes only find out later that a container no longer works, and are not recorded.
func (w *worker) beginTrace() {
	if w.kind == liveness || w.run.adopted {
		return
	}
	start := w.run.began
	if w.kind == readiness && w.run.spec.StartupProbe != nil {
		start = time.Now()
	}
	w.mu.Lock()
	p := w.of.pod
	w.mu.Unlock()
	w.traced = w.Trace.Prepare(p, hop.Probe, start)
	w.enterTry()
	w.traced.Waited(time.Since(start))
	w.traced.Pause() // until the first probe
}

func (w *worker) enterTry() { w.traced.Enter(w.traceName()+" "+w.run.spec.Name, "") }

func (w *worker) traceName() string { return strings.ToLower(string(w.kind)) }

// endTry records the outcome of a probe. The texts of probes are in Events; they come from the container, and stay out of records.
func (w *worker) endTry(good bool) {
	if !good {
		w.traced.Failed(errors.New("the " + w.traceName() + " probe has not succeeded"))
		return
	}
	w.traced.Done()
	w.traced = nil
}

// once runs the probe, and reports whether to go on.
func (w *worker) once(ctx context.Context) bool {
	w.mu.Lock()
	p, target := w.of.pod, w.target()
	w.mu.Unlock()

	if w.traced.Retry() {
		w.enterTry()
	}
	begin := time.Now()
	out, err := w.probeWithRetries(ctx, target)
	if ctx.Err() != nil {
		return false // the container is being stopped, or is no longer probed
	}
	if err != nil || !out.good() {
		w.endTry(false)
	}
	w.recordEvent(p, out, err)
	w.count(p, resultLabel(out, err), time.Since(begin))
	if err != nil {
		return true // a probe that could not be run has no result
	}
	if !w.tally.count(out.good(), w.spec) {
		return true
	}
	if out.good() {
		w.endTry(true)
	}
	changed, done := w.applyResult(ctx, out.good())
	if changed {
		w.Changed(p.UID)
	}
	return !done
}

// target returns where the probe goes. The caller holds the lock.
func (w *worker) target() target {
	t := target{id: w.run.id, container: &w.run.spec, pod: w.of.pod}
	switch {
	case len(w.of.ips) > 0:
		t.ip = w.of.ips[0].String()
	case w.of.pod.Spec.HostNetwork && w.NodeIP != nil:
		t.ip = w.NodeIP().String()
	}
	return t
}

// probeWithRetries runs the probe, with retries after errors.
func (w *worker) probeWithRetries(ctx context.Context, t target) (out outcome, err error) {
	for range maxAttempts {
		if out, err = w.Prober.probeOnce(ctx, w.spec, t); err == nil || ctx.Err() != nil {
			return out, err
		}
	}
	return out, err
}

// recordEvent records an Event about a result that is not a success.
func (w *worker) recordEvent(p *corev1.Pod, out outcome, err error) {
	name := w.run.spec.Name
	switch {
	case err != nil:
		w.Events.Event(event.Container(p, name), corev1.EventTypeWarning, "Unhealthy", "%s probe errored and resulted in %s state: %s",
			w.kind, out.result, err)
	case out.result == warning:
		w.Events.Event(event.Container(p, name), corev1.EventTypeWarning, "ProbeWarning", "%s probe warning: %s", w.kind, out.text)
	case out.result == failure:
		w.Events.Event(event.Container(p, name), corev1.EventTypeWarning, "Unhealthy", "%s probe failed: %s", w.kind, out.text)
	}
}

// count records a result, unless the Pod has been forgotten meanwhile.
func (w *worker) count(p *corev1.Pod, result string, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods[p.UID] == w.of {
		w.metrics.count(p, w.run.spec.Name, string(w.kind), result, took)
	}
}

func resultLabel(out outcome, err error) string {
	switch {
	case err != nil:
		return "unknown"
	case out.good():
		return "successful"
	}
	return "failed"
}

// applyResult applies a result that has reached its threshold to the health of the run. A startup probe is done then; so is
// a liveness probe that failed, because the container will be stopped.
func (w *worker) applyResult(ctx context.Context, good bool) (changed, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return false, true // the Pod has begun to terminate meanwhile
	}
	h := &w.run.health
	switch {
	case w.kind == readiness:
		changed, h.Ready = h.Ready != good, good
	case w.kind == startup && good:
		w.run.start()
		return true, true
	case !good:
		h.Failed = w.failure()
		return true, true
	}
	return changed, false
}

func (w *worker) failure() *podstate.ProbeFailure {
	what := "Container"
	if w.run.isInit {
		what = "Init container"
	}
	return &podstate.ProbeFailure{
		Probe: strings.ToLower(string(w.kind)), Grace: w.spec.TerminationGracePeriodSeconds,
		Message: fmt.Sprintf("%s %s failed %s probe", what, w.run.spec.Name, strings.ToLower(string(w.kind))),
	}
}

// tally counts equal results in a row.
type tally struct {
	good bool
	n    int32
}

// count adds a result, and reports whether its threshold is reached.
func (t *tally) count(good bool, p *corev1.Probe) bool {
	if t.n == 0 || t.good != good {
		*t = tally{good: good}
	}
	t.n++
	if good {
		return t.n >= p.SuccessThreshold
	}
	return t.n >= p.FailureThreshold
}

// bareID returns the ID of a container without the name of the runtime that statuses put before it.
func bareID(id string) string {
	if _, after, found := strings.Cut(id, "://"); found {
		return after
	}
	return id
}
