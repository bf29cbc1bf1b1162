package shutdown

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/period"
)

// Pods are what Stop works on.
type Pods interface {
	// Hold lets new Pods wait, and Resume takes that and every Interrupt back.
	Hold()
	Resume()
	// Record writes down that the running containers of a Pod are about to be interrupted.
	Record(uid types.UID) error
	// Interrupt stops the containers of a Pod within its grace period, or limit if that is shorter. Stopped tells how far that is.
	Interrupt(uid types.UID, limit time.Duration)
	Stopped(uid types.UID) (stopped, reported bool)
}

// Progress is how far a stop is.
type Progress struct {
	// Pods is how many there are, Left names those whose containers still run.
	Pods int
	Left []string
	// Longest is the longest time that a Pod has.
	Longest time.Duration
}

const (
	// stopSlack is how much longer than its grace period a Pod may take: the runtime needs time too.
	stopSlack = 10 * time.Second
	// reportTime is how long statuses may take to reach the API once all containers have stopped.
	reportTime = 5 * time.Second
)

// Stop stops the containers of all Pods because somebody stops the node: those of critical Pods after the others, each with its hooks
// and within its grace period, or limit if that is shorter. What is about to be stopped is recorded first, so that no exit code is
// taken for success, whoever is killed meanwhile. Stop returns what still runs in the end. New Pods wait from then on; an error, or the
// end of ctx, lets everything start again.
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
		if err := wait(ctx, longest(g.pods, limit)+stopSlack, func() bool {
			state.Left = names(all, stopped)
			tell(state)
			return !slices.ContainsFunc(g.pods, func(p *corev1.Pod) bool { return !stopped(p) })
		}); err != nil {
			return nil, err
		}
	}
	err = wait(ctx, reportTime, func() bool {
		return !slices.ContainsFunc(all, func(p *corev1.Pod) bool { _, reported := pods.Stopped(p.UID); return !reported })
	})
	return names(all, stopped), err
}

// names returns the namespaces and names of the Pods of which done is false.
func names(all []*corev1.Pod, done func(*corev1.Pod) bool) (out []string) {
	for _, p := range all {
		if !done(p) {
			out = append(out, p.Namespace+"/"+p.Name)
		}
	}
	slices.Sort(out)
	return out
}

// longest is the longest time that a Pod has.
func longest(all []*corev1.Pod, limit time.Duration) (out time.Duration) {
	for _, p := range all {
		if own := p.Spec.TerminationGracePeriodSeconds; own != nil {
			out = max(out, period.Seconds(*own))
		}
	}
	return min(out, limit)
}

// wait looks again and again until done, or the time is over, or ctx ends, which is the only error.
func wait(ctx context.Context, most time.Duration, done func() bool) error {
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
