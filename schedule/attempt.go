package schedule

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/hop"
	"proa.dev/schedule/eventseries"
	"proa.dev/schedule/framework"
	"proa.dev/schedule/podqueue"
)

// schedulePod makes one attempt to schedule a Pod. It returns when the Pod is assumed on a node and its binding
// started, or when it is back in the queue.
func (s *scheduler) schedulePod(ctx context.Context, e *podqueue.Entry, info *framework.PodInfo) {
	pod := info.Pod
	profile := s.profiles[pod.Spec.SchedulerName]
	if profile == nil {
		s.removeFromQueue(e)
		return
	}
	if pod.DeletionTimestamp != nil {
		s.events.Record(pod, eventseries.Note{
			Controller: profile.Name, Type: corev1.EventTypeWarning, Reason: "FailedScheduling", Action: "Scheduling",
			Message: "skip schedule deleting pod: " + pod.Namespace + "/" + pod.Name,
		})
		s.removeFromQueue(e)
		return
	}
	start := time.Now()
	s.mu.Lock()
	snapshot := s.state.Snapshot()
	s.mu.Unlock()
	seed := framework.Seed{Start: s.searchStart, Tie: rand.Uint64()}
	t := &attempt{Entry: e, info: info, profile: profile, start: start, queuedAt: e.EnqueuedAt,
		queuedRevision: e.QueuedRevision}
	d := s.prepared.decide(snapshot, t, seed, s.changesBetween)
	t.decision = &d
	if d.Total > 0 {
		s.searchStart = (s.searchStart + d.Examined) % d.Total
	}
	t.decided = time.Now()
	s.metrics.algorithm.Observe(t.decided.Sub(start).Seconds())
	s.recent.add(t, &d)
	t.prepared = nil // the next decision uses its memory
	s.recordSearch(t)
	if d.Node == "" && d.Err == nil && d.Total > 0 {
		s.runPostFilters(ctx, t, snapshot)
	}
	if d.Node == "" {
		s.fail(ctx, t, nil)
		return
	}
	s.assume(ctx, t)
}

// The bounds of an attempt. A Pod whose attempts take longer setAsideAfter times in a row is set aside: it is tried again after
// setAsideFor, whatever changes.
const (
	maxAttempt    = 10 * time.Second
	setAsideAfter = 3
	setAsideFor   = 10 * time.Minute
)

var errTooSlow = fmt.Errorf("the search for a node did not end within %s, and was ended", maxAttempt)

// deadline returns when the search for a node must end; zero if the attempt has no beginning.
func (t *attempt) deadline() time.Time {
	if t.start.IsZero() {
		return time.Time{}
	}
	return t.start.Add(maxAttempt)
}

// countSlow counts the attempts in a row that took too long, and sets the Pod aside.
func (t *attempt) countSlow() {
	if !errors.Is(t.decision.Err, errTooSlow) {
		t.SlowAttempts, t.MinBackoff = 0, 0
		return
	}
	if t.SlowAttempts++; t.SlowAttempts >= setAsideAfter {
		t.MinBackoff = setAsideFor
		t.decision.Err = fmt.Errorf("%w; after %d such attempts in a row the Pod is set aside, and tried again every %s: "+
			"ask for fewer devices, affinity terms or constraints", errTooSlow, setAsideAfter, setAsideFor)
	}
}

// attempt is one attempt to schedule a Pod.
type attempt struct {
	*podqueue.Entry
	info     *framework.PodInfo // the state of the Pod that was decided
	profile  *framework.Profile
	prepared *preparedPod // while the Pod is decided
	decision *framework.Decision
	// The times and the rest are for the record of the attempt: when the Pod came into the queue and by which write, and when
	// the attempt began and had a decision.
	queuedAt, start, decided time.Time
	queuedRevision           string
	steps                    []hop.Step
	nominatedNode            string
	clearNomination          bool
}

func (s *scheduler) changesBetween(from, to uint64) ([]framework.PodChange, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.ChangesBetween(from, to)
}

func (s *scheduler) removeFromQueue(e *podqueue.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if uid := e.Pod.Pod.UID; s.queue.Get(uid) == e {
		s.queue.Done(uid)
	}
}

// runPostFilters calls PostFilter of the plugins for a Pod that fits on no node.
func (s *scheduler) runPostFilters(ctx context.Context, t *attempt, snapshot *framework.Snapshot) {
	for i := range t.profile.Plugins {
		pl := &t.profile.Plugins[i]
		if pl.PostFilter == nil {
			continue
		}
		begin := time.Now()
		r := pl.PostFilter(ctx, framework.PostFilterInput{Snapshot: snapshot, Pod: t.info, Profile: t.profile, Decision: t.decision,
			Deadline: t.deadline()})
		if r.Node != "" || r.Message != "" {
			s.recordStep(t, hop.Step{Name: "preempt", Detail: r.Node, Failed: r.Node == ""}, begin)
		}
		if r.Message != "" {
			if t.decision.PostFilterMessage != "" {
				t.decision.PostFilterMessage += ", "
			}
			t.decision.PostFilterMessage += r.Message
		}
		t.clearNomination = t.clearNomination || r.ClearNomination
		if r.Node != "" {
			t.nominatedNode = r.Node
		}
		if r.Final || r.Node != "" {
			return
		}
	}
}

// assume adds the Pod to its node as if it were bound, calls Reserve and Permit, and starts the binding.
func (s *scheduler) assume(ctx context.Context, t *attempt) {
	uid := t.info.Pod.UID
	s.mu.Lock()
	if s.queue.Get(uid) != t.Entry { // the Pod was deleted, or bound by another scheduler
		s.mu.Unlock()
		return
	}
	s.assumed[uid] = t.info
	s.state.AddPod(t.info, t.decision.Node)
	s.nominated.set(s.state, t.info, "")
	s.mu.Unlock()

	for i := range t.decision.Prepared {
		p := &t.decision.Prepared[i]
		if p.Reserve == nil {
			continue
		}
		if r := p.Reserve(t.decision.Node); r != nil {
			s.rejectAssumed(ctx, t, p.Name, r)
			return
		}
	}
	waits, plugin, r := permit(t)
	if r != nil {
		s.rejectAssumed(ctx, t, plugin, r)
		return
	}
	if len(waits) == 0 {
		s.removeFromQueue(t.Entry)
	}
	slow := mustWaitBeforeBinding(t, waits)
	if !slow { // Pods that wait for volumes or other Pods must not block the binding of others
		select {
		case s.binds <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
	s.startBinding(ctx, binding{t, waits, slow})
}

// permitWait is a plugin that delays the binding of a Pod.
type permitWait struct {
	plugin string
	framework.Permission
}

// permit calls Permit of all plugins, and returns those that have to be waited for, or the first rejection with its
// plugin.
func permit(t *attempt) (waits []permitWait, plugin string, r *framework.Rejection) {
	for i := range t.decision.Prepared {
		p := &t.decision.Prepared[i]
		if p.Permit == nil {
			continue
		}
		answer := p.Permit(t.decision.Node)
		if answer.Rejection != nil {
			return nil, p.Name, answer.Rejection
		}
		if answer.Wait != nil {
			waits = append(waits, permitWait{p.Name, answer})
		}
	}
	return waits, "", nil
}

// rejectAssumed removes an assumed Pod from its node because a plugin has rejected it after the decision.
func (s *scheduler) rejectAssumed(ctx context.Context, t *attempt, plugin string, r *framework.Rejection) {
	s.unassume(t, r.Err == nil)
	d := &framework.Decision{Seed: t.decision.Seed, Total: 1,
		Rejections: []framework.NodeRejection{{Node: t.decision.Node, Plugin: plugin, Rejection: r}}, Err: r.Err}
	if r.Err == nil {
		d.AddRejectingPlugin(plugin, r)
	}
	t.decision, t.clearNomination = d, true
	s.fail(ctx, t, nil)
}

// unassume removes an assumed Pod from its node and calls Unreserve. With rejected, the event that resources were freed
// does not wake the Pod itself.
func (s *scheduler) unassume(t *attempt, rejected bool) {
	node := t.decision.Node
	for i := range t.decision.Prepared {
		if p := &t.decision.Prepared[i]; p.Unreserve != nil {
			p.Unreserve(node)
		}
	}
	uid := t.info.Pod.UID
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.assumed[uid] != t.info { // the Pod was bound after all, or deleted
		return
	}
	delete(s.assumed, uid)
	s.state.RemovePod(uid)
	except := uid
	if !rejected {
		except = ""
	}
	s.queue.HandleEvent(podqueue.ClusterEvent{On: framework.AssignedPod, Do: framework.Delete, Old: podqueue.WithNode(t.info.Pod, node),
		Except: except}, time.Now())
	s.wake.Send()
}
