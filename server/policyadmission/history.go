package policyadmission

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"proa.dev/kinds/kind"
)

// history is what MutatingAdmissionPolicies have done to a write. Those with the reinvocation policy IfNeeded run a second time if the
// object has been changed after them: by another policy, a webhook or a built-in plugin. It is kept between the two runs of the plugins.
type history struct {
	run  *kind.Reinvocation
	last kind.Object // as the first run has left it; nil when nobody will ask
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

// historyOf returns the history of a write. Connections have none to keep.
func historyOf(run *kind.Reinvocation) *history {
	if run == nil {
		run = &kind.Reinvocation{}
	}
	if h, ok := run.Kept(MutatingName).(*history); ok {
		return h
	}
	h := &history{run: run, before: map[invocationKey]bool{}, again: map[invocationKey]bool{}}
	run.Keep(MutatingName, h)
	return h
}

// begin looks whether others have changed the object since the plugin ran before.
func (h *history) begin(obj kind.Object) {
	if h.run.Again && len(h.before) > 0 && !equality.Semantic.DeepEqual(h.last, obj) {
		h.demand()
	}
}

// end notes how the plugin leaves the object.
func (h *history) end(obj kind.Object) {
	if len(h.before) > 0 && obj != nil {
		h.last = obj.DeepCopyObject().(kind.Object)
	}
}

// due reports whether an invocation is to run: the first time each is.
func (h *history) due(k invocationKey) bool { return !h.run.Again || h.again[k] }

// ran notes a policy that may run again.
func (h *history) ran(k invocationKey) { h.before[k] = true }

// require asks for a second run, because the object has been changed.
func (h *history) require() {
	h.demand()
	h.run.Want()
}

// demand makes the policies that ran before run again.
func (h *history) demand() {
	for k := range h.before {
		h.again[k] = true
	}
	clear(h.before)
}
