package webhook

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/kinds/kind"
)

// totalTimeout bounds how long all mutating webhooks together may take for one write: what upstream allows a whole request.
const totalTimeout = time.Minute

// rounds is what one run of the plugin tells the next one: webhooks that ask for it are called again when somebody has changed the object
// after them.
type rounds struct {
	*kind.Reinvocation                 // nil for who wants one round only
	invoked            map[string]bool // have been called, and want to be again if the object changes
	again              map[string]bool // are to be called in the second round
	last               runtime.Object  // the object, or the options of a connection, as they were at the end of the first round
	deadline           time.Time       // for all calls together
}

// begin starts a round.
func begin(a *kind.Admission) *rounds {
	first := &rounds{Reinvocation: a.Reinvocation, deadline: time.Now().Add(totalTimeout)}
	if a.Reinvocation == nil {
		return first
	}
	kept, ok := a.Reinvocation.Kept(MutatingName).(*rounds)
	if !ok {
		kept = first
		a.Reinvocation.Keep(MutatingName, kept)
	}
	if kept.round() == 1 && len(kept.invoked) > 0 && !equality.Semantic.DeepEqual(kept.last, subject(a)) {
		kept.due() // by another plugin
	}
	return kept
}

func (r *rounds) round() int {
	if r.Reinvocation != nil && r.Again {
		return 1
	}
	return 0
}

// calls says whether a webhook is called in this round. None is called in the second one for the first time.
func (r *rounds) calls(h *hook) bool { return r.round() == 0 || r.again[h.id] }

// called notes that a webhook was called.
func (r *rounds) called(h *hook, changed bool) {
	if r.Reinvocation == nil {
		return
	}
	if changed {
		r.due()
		r.Want()
	}
	if h.again {
		if r.invoked == nil {
			r.invoked = map[string]bool{}
		}
		r.invoked[h.id] = true
	}
}

// due makes those that were called before come again.
func (r *rounds) due() {
	if r.again == nil {
		r.again = map[string]bool{}
	}
	for id := range r.invoked {
		r.again[id] = true
	}
	r.invoked = nil
}

// end keeps the object of a first round, if anybody will ask whether it was changed.
func (r *rounds) end(a *kind.Admission) {
	if now := subject(a); len(r.invoked) > 0 && r.round() == 0 && now != nil {
		r.last = now.DeepCopyObject()
	}
}

// subject is what webhooks may change.
func subject(a *kind.Admission) runtime.Object {
	if a.Object != nil {
		return a.Object
	}
	return a.Connect
}
