package policyadmission

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/kind"
	"proa.dev/server/match"
)

// Source shows policies and bindings as the server's cache has them.
type Source interface {
	// Wait returns when the policies and bindings are loaded.
	Wait(ctx context.Context) error
	// Generation changes with every change of a policy or a binding.
	Generation() int64
	// All yields the objects of a resource in the order of their names. If some of them cannot be decoded it returns an error as well.
	All(resource schema.GroupResource) (iter.Seq[kind.Object], error)
}

// policy is what policies of both sorts have in common, with the bindings that put it into effect.
type policy[E any] struct {
	revision
	name      string
	paramKind *admissionv1.ParamKind
	criteria  *match.Criteria
	failure   admissionv1.FailurePolicyType
	bindings  []*binding
	// program compiles the expressions when it is first called.
	program func() E
}

// revision identifies the spec of a policy: as long as it is the same, its compiled expressions are too.
type revision struct {
	uid        types.UID
	generation int64
}

func revisionOf(m *metav1.ObjectMeta) revision { return revision{m.UID, m.Generation} }

// binding is what bindings of both sorts have in common.
type binding struct {
	name, policy string
	criteria     *match.Criteria // nil: everything that the policy matches
	params       *admissionv1.ParamRef
	actions      []admissionv1.ValidationAction // of a ValidatingAdmissionPolicyBinding
}

// index finds the policies of one sort that are in effect. It is safe for concurrent use.
type index[E any] struct {
	source             Source
	policies, bindings schema.GroupResource
	readPolicy         func(kind.Object) *policy[E] // nil for an object of another type
	readBinding        func(kind.Object) *binding

	now      atomic.Pointer[state[E]]
	building sync.Mutex // building lets one goroutine at a time make a new state
}

// state is the policies of one generation. It never changes.
type state[E any] struct {
	generation int64
	active     []*policy[E] // those with a binding, by name
	// err says that a policy or a binding cannot be read. It must not be taken for one that is not there, so writes are refused.
	err error
}

// current returns the policies that are in effect now. An error means that some of them are not known.
func (x *index[E]) current(ctx context.Context) ([]*policy[E], error) {
	s := x.now.Load()
	if s == nil || s.err != nil || s.generation != x.source.Generation() {
		var err error
		if s, err = x.rebuild(ctx); err != nil {
			return nil, err
		}
	}
	return s.active, s.err
}

// rebuild reads the policies again. Those whose spec has not changed keep their programs.
func (x *index[E]) rebuild(ctx context.Context) (*state[E], error) {
	x.building.Lock()
	defer x.building.Unlock()
	last := x.now.Load()
	if last == nil {
		if err := x.source.Wait(ctx); err != nil {
			return nil, err
		}
		last = &state[E]{generation: -1}
	}
	// The generation is read before the objects: what is filed under it is never older than it.
	next := &state[E]{generation: x.source.Generation()}
	if next.generation == last.generation && last.err == nil {
		return last, nil
	}
	bound := map[string][]*binding{}
	all, err := x.source.All(x.bindings)
	for o := range all {
		if b := x.readBinding(o); b != nil {
			bound[b.policy] = append(bound[b.policy], b)
		}
	}
	next.err = err
	if len(bound) > 0 {
		next.active, err = x.read(bound, last)
		if next.err == nil {
			next.err = err
		}
	}
	x.now.Store(next)
	return next, nil
}

// read returns the policies that have bindings.
func (x *index[E]) read(bound map[string][]*binding, last *state[E]) (active []*policy[E], err error) {
	before := map[string]*policy[E]{}
	for _, p := range last.active {
		before[p.name] = p
	}
	all, err := x.source.All(x.policies)
	for o := range all {
		bindings := bound[o.GetName()]
		if len(bindings) == 0 {
			continue
		}
		p := x.readPolicy(o)
		if p == nil {
			continue
		}
		p.bindings = bindings
		if was := before[p.name]; was != nil && was.revision == p.revision {
			p.program = was.program
		}
		active = append(active, p)
	}
	return active, err
}

// criteriaOf returns which of the writes that a policy matches a binding is for.
func criteriaOf(m *admissionv1.MatchResources) *match.Criteria {
	if m == nil {
		return nil
	}
	return match.ForPolicy(m)
}
