package policyadmission

import (
	"cmp"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/kinds/kind"
	"proa.dev/server/admissionmatch"
	"proa.dev/server/registrations"
)

// Source provides policies and bindings from the server's cache.
type Source = registrations.Source

// policy is what policies of both types have in common, with the bindings that activate it.
type policy[E any] struct {
	revision
	name      string
	paramKind *admissionv1.ParamKind
	criteria  *admissionmatch.Criteria
	failure   admissionv1.FailurePolicyType
	bindings  []*binding
	// program compiles the expressions when it is first called.
	program func() E
}

// revision identifies the spec of a policy: as long as it is the same, so are its compiled expressions.
type revision struct {
	uid        types.UID
	generation int64
}

func revisionOf(m *metav1.ObjectMeta) revision { return revision{m.UID, m.Generation} }

// binding is what bindings of both types have in common.
type binding struct {
	name, policy string
	criteria     *admissionmatch.Criteria // nil: everything that the policy matches
	params       *admissionv1.ParamRef
	actions      []admissionv1.ValidationAction // of a ValidatingAdmissionPolicyBinding
}

// reader reads the active policies of one type.
type reader[E any] struct {
	source             Source
	policies, bindings schema.GroupResource
	readPolicy         func(kind.Object) *policy[E] // nil for an object of another type
	readBinding        func(kind.Object) *binding
}

// newIndex returns the index of the active policies of one type: those with a binding, by name.
func newIndex[E any](r reader[E]) registrations.Index[[]*policy[E]] {
	return registrations.Index[[]*policy[E]]{Source: r.source, Build: r.build}
}

// build reads policies and bindings. Policies whose spec has not changed keep their compiled expressions.
func (x reader[E]) build(last []*policy[E]) (active []*policy[E], err error) {
	bound := map[string][]*binding{}
	all, err := x.source.All(x.bindings)
	for o := range all {
		if b := x.readBinding(o); b != nil {
			bound[b.policy] = append(bound[b.policy], b)
		}
	}
	if len(bound) == 0 {
		return nil, err
	}
	active, policyErr := x.read(bound, last)
	return active, cmp.Or(err, policyErr)
}

// read returns the policies that have bindings.
func (x reader[E]) read(bound map[string][]*binding, last []*policy[E]) (active []*policy[E], err error) {
	before := map[string]*policy[E]{}
	for _, p := range last {
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

// criteriaOf returns the criteria of a binding, which narrow those of its policy; nil if it has none.
func criteriaOf(m *admissionv1.MatchResources) *admissionmatch.Criteria {
	if m == nil {
		return nil
	}
	return admissionmatch.ForPolicy(m)
}
