package policyadmission

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"proa.dev/kinds/kind"
)

// history records what MutatingAdmissionPolicies have done to a write. Those with the reinvocation policy IfNeeded run
// a second time if the object has been changed after them: by another policy, a webhook or a built-in plugin. It is
// kept between the two runs of the plugins.
type history struct {
	run  *kind.Reinvocation
	last kind.Object // at the end of the first run; nil when it is not needed
	// before holds the policies that may run again, and again those that must.
	before, again map[invocationKey]bool
}

// invocationKey identifies an invocation in both runs.
type invocationKey struct{ policy, binding, paramNamespace, paramName string }

func keyOf(one *invocation) invocationKey {
	k := invocationKey{policy: one.policy.name, binding: one.binding.name}
	if one.params == nil {
		return k
	}
	if m, err := meta.Accessor(one.params); err == nil {
		k.paramNamespace, k.paramName = m.GetNamespace(), m.GetName()
	}
	return k
}

// historyOf returns the history of a write. For connections it is not kept.
func historyOf(run *kind.Reinvocation) *history {
	if run == nil {
		run = &kind.Reinvocation{}
	}
	if h, ok := run.Load(MutatingName).(*history); ok {
		return h
	}
	h := &history{run: run, before: map[invocationKey]bool{}, again: map[invocationKey]bool{}}
	run.Store(MutatingName, h)
	return h
}

// begin checks whether others have changed the object since the plugin ran before.
func (h *history) begin(obj kind.Object) {
	if h.run.IsSecondRun && len(h.before) > 0 && !equality.Semantic.DeepEqual(h.last, obj) {
		h.rerunAll()
	}
}

// end records the object at the end of a run.
func (h *history) end(obj kind.Object) {
	if len(h.before) > 0 && obj != nil {
		h.last = obj.DeepCopyObject().(kind.Object)
	}
}

// shouldRun reports whether an invocation is to run. In the first run all do.
func (h *history) shouldRun(k invocationKey) bool { return !h.run.IsSecondRun || h.again[k] }

// recordRun records a policy that may run again.
func (h *history) recordRun(k invocationKey) { h.before[k] = true }

// requestRerun asks for a second run, because the object has been changed.
func (h *history) requestRerun() {
	h.rerunAll()
	h.run.Request()
}

// rerunAll makes the policies that ran before run again.
func (h *history) rerunAll() {
	for k := range h.before {
		h.again[k] = true
	}
	clear(h.before)
}
