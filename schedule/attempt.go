package schedule

import (
	"context"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// attempt tries one pod. It returns when the pod is on its way to a node, or back in the queue.
func (s *scheduler) attempt(ctx context.Context, e *Entry, info *PodInfo) {
	pod := info.Pod
	profile := s.profiles[pod.Spec.SchedulerName]
	if profile == nil {
		s.drop(e)
		return
	}
	if pod.DeletionTimestamp != nil {
		s.events.say(pod, profile.Name, corev1.EventTypeWarning, "FailedScheduling", "Scheduling",
			"skip schedule deleting pod: "+pod.Namespace+"/"+pod.Name)
		s.drop(e)
		return
	}
	start := time.Now()
	s.mu.Lock()
	snapshot := s.state.Snapshot()
	s.mu.Unlock()
	seed := Seed{Start: s.start, Tie: rand.Uint64()}
	try := &try{Entry: e, info: info, profile: profile, start: start}
	d := s.kept.decide(snapshot, try, seed, s.between)
	try.decision = &d
	if d.Total > 0 {
		s.start = (s.start + d.Seen) % d.Total
	}
	s.metrics.algorithm.Observe(time.Since(start).Seconds())
	if d.Node == "" && d.Err == nil && d.Total > 0 {
		s.rescue(ctx, try, snapshot)
	}
	s.recent.add(Record{Pod: info, Profile: profile, Decision: d, At: start, Attempt: e.Attempts, snapshot: snapshot})
	if d.Node == "" {
		s.fail(ctx, try, nil)
		return
	}
	s.assume(ctx, try)
}

// try is one attempt on its way.
type try struct {
	*Entry
	info     *PodInfo // as it was decided about
	profile  *Profile
	decision *Decision
	start    time.Time
	nominate string
	clear    bool
}

func (s *scheduler) between(from, to uint64) ([]change, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.between(from, to)
}

func (s *scheduler) drop(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if uid := e.Pod.Pod.UID; s.queue.Get(uid) == e {
		s.queue.Done(uid)
	}
}

// rescue lets plugins make room for a pod that fits nowhere.
func (s *scheduler) rescue(ctx context.Context, t *try, snapshot *Snapshot) {
	for i := range t.profile.Plugins {
		pl := &t.profile.Plugins[i]
		if pl.Rescue == nil {
			continue
		}
		r := pl.Rescue(ctx, Attempt{Snapshot: snapshot, Pod: t.info, Profile: t.profile, Decision: t.decision})
		if r.Message != "" {
			if t.decision.Rescue != "" {
				t.decision.Rescue += ", "
			}
			t.decision.Rescue += r.Message
		}
		t.clear = t.clear || r.Clear
		if r.Node != "" {
			t.nominate = r.Node
		}
		if r.Done || r.Node != "" {
			return
		}
	}
}

// assume counts the pod on its node as if it were there, and sends it on its way.
func (s *scheduler) assume(ctx context.Context, t *try) {
	uid := t.info.Pod.UID
	s.mu.Lock()
	if s.queue.Get(uid) != t.Entry { // it has gone, or somebody else has bound it
		s.mu.Unlock()
		return
	}
	s.assumed[uid] = t.info
	s.state.AddPod(t.info, t.decision.Node)
	s.nominated.set(s.state, t.info, "")
	s.mu.Unlock()

	for i := range t.decision.parts {
		p := &t.decision.parts[i]
		if p.Reserve == nil {
			continue
		}
		if v := p.Reserve(t.decision.Node); v != nil {
			s.turnBack(ctx, t, p.Name, v)
			return
		}
	}
	waits, plugin, v := permit(t)
	if v != nil {
		s.turnBack(ctx, t, plugin, v)
		return
	}
	if len(waits) == 0 {
		s.drop(t.Entry)
	}
	slow := isSlow(t, waits)
	if !slow { // who waits for volumes or others must not keep the rest from being bound
		select {
		case s.binds <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
	s.send(ctx, flight{t, waits, slow})
}

// waiting is a plugin that holds a pod back.
type waiting struct {
	plugin string
	Permission
}

// permit asks all plugins; those that hold the pod back are waited for later.
func permit(t *try) (waits []waiting, plugin string, v *Verdict) {
	for i := range t.decision.parts {
		p := &t.decision.parts[i]
		if p.Permit == nil {
			continue
		}
		answer := p.Permit(t.decision.Node)
		if answer.Verdict != nil {
			return nil, p.Name, answer.Verdict
		}
		if answer.Wait != nil {
			waits = append(waits, waiting{p.Name, answer})
		}
	}
	return waits, "", nil
}

// turnBack takes a pod off its node again because a plugin rejected it there.
func (s *scheduler) turnBack(ctx context.Context, t *try, plugin string, v *Verdict) {
	s.forget(t, v.Err == nil)
	d := &Decision{Seed: t.decision.Seed, Total: 1, Verdicts: []NodeVerdict{{t.decision.Node, plugin, v}}, Err: v.Err}
	if v.Err == nil {
		d.blame(plugin, v)
	}
	t.decision, t.clear = d, true
	s.fail(ctx, t, nil)
}

// forget frees what a pod on its way has taken. rejected says that the pod itself must not be woken by that.
func (s *scheduler) forget(t *try, rejected bool) {
	node := t.decision.Node
	for i := range t.decision.parts {
		if p := &t.decision.parts[i]; p.Unreserve != nil {
			p.Unreserve(node)
		}
	}
	uid := t.info.Pod.UID
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.assumed[uid] != t.info { // it is bound after all, or gone and forgotten
		return
	}
	delete(s.assumed, uid)
	s.state.RemovePod(uid)
	not := uid
	if !rejected {
		not = ""
	}
	s.queue.Happened(AssignedPod, Delete, withNode(t.info.Pod, node), nil, not, time.Now())
	s.signal()
}
