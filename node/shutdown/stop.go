package shutdown

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/lib/duration"
)

// Pods is the part of the Pod manager that Stop needs.
type Pods interface {
	// Hold keeps new Pods from being started; Resume revokes that and every Interrupt.
	Hold()
	Resume()
	// Record records on disk that the running containers of a Pod are about to be interrupted.
	Record(uid types.UID) error
	// Interrupt stops the containers of a Pod within its grace period, or limit if that is shorter. Stopped reports how
	// far that is.
	Interrupt(uid types.UID, limit time.Duration)
	Stopped(uid types.UID) (stopped, reported bool)
}

// Progress says how far a stop is.
type Progress struct {
	// Pods is the number of Pods, Left are those whose containers still run.
	Pods int
	Left []string
	// Longest is the longest grace period.
	Longest time.Duration
}

const (
	// stopSlack is how much longer than its grace period a Pod may take: the runtime needs time too.
	stopSlack = 10 * time.Second
	// reportTime is how long statuses may take to reach the API once all containers have stopped.
	reportTime = 5 * time.Second
)

// Stop stops the containers of all Pods because the node is being stopped: those of critical Pods after the others,
// each with its hooks and within its grace period, or limit if that is shorter. What is about to be stopped is recorded
// first, so that no exit code is taken for success even if the agent is killed meanwhile. Stop returns what still runs
// in the end. New Pods are held from then on; after an error, or when ctx ends, everything is started again.
func Stop(ctx context.Context, pods Pods, all []*corev1.Pod, limit time.Duration, tell func(Progress)) (left []string, err error) {
	pods.Hold()
	defer func() {
		if err != nil {
			pods.Resume()
		}
	}()
	for _, p := range all {
		if err := pods.Record(p.UID); err != nil {
			return nil, fmt.Errorf("Pod %s/%s: %w", p.Namespace, p.Name, err)
		}
	}
	state := Progress{Pods: len(all), Longest: longest(all, limit)}
	stopped := func(p *corev1.Pod) bool { done, _ := pods.Stopped(p.UID); return done }
	for _, g := range groups([]Period{{Priority: 0}, {Priority: critical}}, all) {
		for _, p := range g.pods {
			pods.Interrupt(p.UID, limit)
		}
		if err := pollUntil(ctx, longest(g.pods, limit)+stopSlack, func() bool {
			state.Left = names(all, stopped)
			tell(state)
			return !slices.ContainsFunc(g.pods, func(p *corev1.Pod) bool { return !stopped(p) })
		}); err != nil {
			return nil, err
		}
	}
	err = pollUntil(ctx, reportTime, func() bool {
		return !slices.ContainsFunc(all, func(p *corev1.Pod) bool { _, reported := pods.Stopped(p.UID); return !reported })
	})
	return names(all, stopped), err
}

// names returns the namespaces and names of the Pods for which done is false.
func names(all []*corev1.Pod, done func(*corev1.Pod) bool) (out []string) {
	for _, p := range all {
		if !done(p) {
			out = append(out, p.Namespace+"/"+p.Name)
		}
	}
	slices.Sort(out)
	return out
}

// longest returns the longest grace period of the Pods, at most limit.
func longest(all []*corev1.Pod, limit time.Duration) (out time.Duration) {
	for _, p := range all {
		if own := p.Spec.TerminationGracePeriodSeconds; own != nil {
			out = max(out, duration.FromSeconds(*own))
		}
	}
	return min(out, limit)
}

// pollUntil polls until done returns true, or the time is over, or ctx ends, which is the only error.
func pollUntil(ctx context.Context, most time.Duration, done func() bool) error {
	end := time.NewTimer(most)
	defer end.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return nil
		case <-tick.C:
		}
	}
	return nil
}
