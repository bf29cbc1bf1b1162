package webhook

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/kinds/kind"
)

// totalTimeout limits how long all mutating webhooks together may take for one write: the limit of a whole request
// upstream.
const totalTimeout = time.Minute

// rounds carries state from one run of the plugin to the next: webhooks with the reinvocation policy IfNeeded are
// called again when the object has been changed after them.
type rounds struct {
	*kind.Reinvocation                 // nil if there is only one round
	invoked            map[string]bool // webhooks that were called, and must be called again if the object changes
	again              map[string]bool // webhooks to be called in the second round
	last               runtime.Object  // the object, or the options of a connection, at the end of the first round
	deadline           time.Time       // for all calls together
}

// beginRound starts a round.
func beginRound(a *kind.Admission) *rounds {
	first := &rounds{Reinvocation: a.Reinvocation, deadline: time.Now().Add(totalTimeout)}
	if a.Reinvocation == nil {
		return first
	}
	kept, ok := a.Reinvocation.Load(MutatingName).(*rounds)
	if !ok {
		kept = first
		a.Reinvocation.Store(MutatingName, kept)
	}
	if kept.round() == 1 && len(kept.invoked) > 0 && !equality.Semantic.DeepEqual(kept.last, mutableObject(a)) {
		kept.reinvokeCalled() // another plugin has changed the object
	}
	return kept
}

func (r *rounds) round() int {
	if r.Reinvocation != nil && r.IsSecondRun {
		return 1
	}
	return 0
}

// shouldCall reports whether a webhook is called in this round. The second round only calls webhooks again.
func (r *rounds) shouldCall(h *hook) bool { return r.round() == 0 || r.again[h.id] }

// recordCall records that a webhook was called.
func (r *rounds) recordCall(h *hook, changed bool) {
	if r.Reinvocation == nil {
		return
	}
	if changed {
		r.reinvokeCalled()
		r.Request()
	}
	if h.reinvoke {
		if r.invoked == nil {
			r.invoked = map[string]bool{}
		}
		r.invoked[h.id] = true
	}
}

// reinvokeCalled makes the webhooks that were called so far run again.
func (r *rounds) reinvokeCalled() {
	if r.again == nil {
		r.again = map[string]bool{}
	}
	for id := range r.invoked {
		r.again[id] = true
	}
	r.invoked = nil
}

// end keeps the object at the end of the first round, if a webhook may be called again.
func (r *rounds) end(a *kind.Admission) {
	if now := mutableObject(a); len(r.invoked) > 0 && r.round() == 0 && now != nil {
		r.last = now.DeepCopyObject()
	}
}

// mutableObject returns what webhooks may change.
func mutableObject(a *kind.Admission) runtime.Object {
	if a.Object != nil {
		return a.Object
	}
	return a.Connect
}
