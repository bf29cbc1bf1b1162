// Package policyadmission evaluates admission policies: ValidatingAdmissionPolicies in hop 6, MutatingAdmissionPolicies
// in hop 4. It owns the list of policies and bindings, which it reads from the server's cache, their compiled
// expressions, and what follows from a result: a denial, a warning, an audit annotation, a changed object. The
// expressions themselves are compiled and run by the published library of k8s.io/apiserver.
//
// A policy is compiled when a write first matches it, and again after its spec has changed. A write in a cluster
// without policies costs two comparisons of numbers.
package policyadmission

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/server/admissionmatch"
)

// The names of the plugins.
const (
	ValidatingName = "ValidatingAdmissionPolicy"
	MutatingName   = "MutatingAdmissionPolicy"
)

// Config holds what the plugins need of the server.
type Config struct {
	// Validating and Mutating provide the policies of each type with their bindings.
	Validating, Mutating Source
	// Authorizer answers the authorization checks of the variable "authorizer".
	Authorizer authorizer.UnconditionalAuthorizer
	// Types returns the types by which apply configurations are merged into objects of a kind; nil when they are not
	// known yet.
	Types func(gvk schema.GroupVersionKind) managedfields.TypeConverter
	// Metrics counts decisions; nil for none.
	Metrics *Metrics
}

// Plugins returns the plugins of hop 4 and of hop 6.
func Plugins(c Config) (mutating, validating kind.Plugin) {
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	v := &validatingPlugin{Config: c, policies: newIndex(reader[*validation]{
		source: c.Validating, policies: gr.ValidatingAdmissionPolicies, bindings: ValidatingBindings(),
		readPolicy: readValidatingPolicy, readBinding: readValidatingBinding,
	})}
	m := &mutatingPlugin{Config: c, policies: newIndex(reader[*mutation]{
		source: c.Mutating, policies: MutatingPolicies(), bindings: MutatingBindings(),
		readPolicy: readMutatingPolicy, readBinding: readMutatingBinding,
	})}
	return kind.Plugin{Name: MutatingName, Admit: m.admit}, kind.Plugin{Name: ValidatingName, Admit: v.admit}
}

// ValidatingBindings returns the resource of ValidatingAdmissionPolicyBindings.
func ValidatingBindings() schema.GroupResource {
	return registration("validatingadmissionpolicybindings")
}

// MutatingPolicies returns the resource of MutatingAdmissionPolicies.
func MutatingPolicies() schema.GroupResource { return registration("mutatingadmissionpolicies") }

// MutatingBindings returns the resource of MutatingAdmissionPolicyBindings.
func MutatingBindings() schema.GroupResource { return registration("mutatingadmissionpolicybindings") }

func registration(resource string) schema.GroupResource {
	return schema.GroupResource{Group: admissionv1.GroupName, Resource: resource}
}

// isExempt reports whether no policy may match a write: policies and bindings themselves are exempt, so that a policy
// that denies everything can still be deleted.
func isExempt(a *kind.Admission) bool {
	if a.Def.Group != admissionv1.GroupName {
		return admissionmatch.IsCleanup(a)
	}
	switch a.Def.Resource() {
	case gr.ValidatingAdmissionPolicies, ValidatingBindings(), MutatingPolicies(), MutatingBindings():
		return true
	}
	return false
}

// failurePolicy returns what an error in a policy means; Fail is the default.
func failurePolicy(f *admissionv1.FailurePolicyType) admissionv1.FailurePolicyType {
	if f == nil {
		return admissionv1.Fail
	}
	return *f
}
