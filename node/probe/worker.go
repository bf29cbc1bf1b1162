package probe

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/clock"
	"proa.dev/node/pod"
)

// sort is what a probe is for, in the word that people read.
type sort string

const (
	startup   sort = "Startup"
	liveness  sort = "Liveness"
	readiness sort = "Readiness"
)

// tries is how often a probe is asked before it counts that it could not be asked.
const tries = 3

// worker asks one probe of one run of a container until its context ends.
type worker struct {
	*Prober
	of     *subject
	run    *run
	sort   sort
	spec   *corev1.Probe
	jitter time.Duration
	tally  tally
}

// fill puts in what the API would have put in.
func fill(p *corev1.Probe) {
	p.TimeoutSeconds = cmp.Or(p.TimeoutSeconds, 1)
	p.PeriodSeconds = cmp.Or(p.PeriodSeconds, 10)
	p.SuccessThreshold = cmp.Or(p.SuccessThreshold, 1)
	p.FailureThreshold = cmp.Or(p.FailureThreshold, 3)
}

func (w *worker) period() time.Duration { return time.Duration(w.spec.PeriodSeconds) * time.Second }

func (w *worker) loop(ctx context.Context) {
	if w.sort != startup {
		select {
		case <-ctx.Done():
			return
		case <-w.run.started:
		}
	}
	delay := time.Until(w.run.began.Add(time.Duration(w.spec.InitialDelaySeconds) * time.Second))
	if !clock.Sleep(ctx, max(delay, w.jitter)) {
		return
	}
	tick := time.NewTicker(w.period())
	defer tick.Stop()
	again := w.run.again
	if w.sort != readiness {
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

// once asks, and says whether to go on.
func (w *worker) once(ctx context.Context) bool {
	w.mu.Lock()
	p, target := w.of.pod, w.target()
	w.mu.Unlock()

	begin := time.Now()
	out, err := w.ask(ctx, target)
	if ctx.Err() != nil {
		return false // the container ends, or nobody wants to know any more
	}
	w.tell(p, out, err)
	w.count(p, word(out, err), time.Since(begin))
	if err != nil {
		return true // who could not be asked has not answered
	}
	if !w.tally.count(out.good(), w.spec) {
		return true
	}
	changed, done := w.settle(ctx, out.good())
	if changed {
		w.Changed(p.UID)
	}
	return !done
}

// target is where the probe goes to. The caller holds the lock.
func (w *worker) target() target {
	t := target{id: w.run.id, container: &w.run.spec, pod: w.of.pod}
	switch {
	case len(w.of.ips) > 0:
		t.ip = w.of.ips[0].String()
	case w.of.pod.Spec.HostNetwork && w.Host != nil:
		t.ip = w.Host().String()
	}
	return t
}

// ask asks until there is an answer, but not for ever.
func (w *worker) ask(ctx context.Context, t target) (out outcome, err error) {
	for range tries {
		if out, err = w.Prober.ask(ctx, w.spec, t); err == nil || ctx.Err() != nil {
			return out, err
		}
	}
	return out, err
}

// tell tells people of what is not well.
func (w *worker) tell(p *corev1.Pod, out outcome, err error) {
	name := w.run.spec.Name
	switch {
	case err != nil:
		w.Events.Event(p, name, corev1.EventTypeWarning, "Unhealthy", "%s probe errored and resulted in %s state: %s", w.sort, out.result, err)
	case out.result == warning:
		w.Events.Event(p, name, corev1.EventTypeWarning, "ProbeWarning", "%s probe warning: %s", w.sort, out.text)
	case out.result == failure:
		w.Events.Event(p, name, corev1.EventTypeWarning, "Unhealthy", "%s probe failed: %s", w.sort, out.text)
	}
}

// count notes an answer, unless the Pod was forgotten meanwhile.
func (w *worker) count(p *corev1.Pod, result string, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods[p.UID] == w.of {
		w.numbers.count(p, w.run.spec.Name, string(w.sort), result, took)
	}
}

func word(out outcome, err error) string {
	switch {
	case err != nil:
		return "unknown"
	case out.good():
		return "successful"
	}
	return "failed"
}

// settle puts an answer that counts into the health of the run. A startup probe is done with its first answer; so is a
// liveness probe that failed, as the container will be ended.
func (w *worker) settle(ctx context.Context, good bool) (changed, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return false, true // the Pod began to terminate meanwhile
	}
	h := &w.run.health
	switch {
	case w.sort == readiness:
		changed, h.Ready = h.Ready != good, good
	case w.sort == startup && good:
		w.run.start()
		return true, true
	case !good:
		h.Failed = w.failure()
		return true, true
	}
	return changed, false
}

func (w *worker) failure() *pod.Failure {
	what := "Container"
	if w.run.isInit {
		what = "Init container"
	}
	return &pod.Failure{
		Probe: strings.ToLower(string(w.sort)), Grace: w.spec.TerminationGracePeriodSeconds,
		Message: fmt.Sprintf("%s %s failed %s probe", what, w.run.spec.Name, strings.ToLower(string(w.sort))),
	}
}

// tally counts answers that are alike.
type tally struct {
	good bool
	n    int32
}

// count notes an answer and says whether as many in a row as the probe wants were alike.
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

// bare is the ID of a container without the name of the runtime that a status puts before it.
func bare(id string) string {
	if _, after, found := strings.Cut(id, "://"); found {
		return after
	}
	return id
}
