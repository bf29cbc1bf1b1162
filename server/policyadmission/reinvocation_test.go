package policyadmission

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/kind"
)

// mutatingSource returns a source with one policy, which has a reinvocation policy and one JSON patch.
func mutatingSource(t testing.TB, again, expression string) *changingSource {
	t.Helper()
	p := &admissionv1.MutatingAdmissionPolicy{}
	if err := yaml.UnmarshalStrict([]byte(`
metadata: {name: p}
spec:
  reinvocationPolicy: `+again+`
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}], matchPolicy: Equivalent}
`), p); err != nil {
		t.Fatal(err)
	}
	p.Spec.Mutations = []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch,
		JSONPatch: &admissionv1.JSONPatch{Expression: expression}}}
	return &changingSource{generation: 1, objects: map[schema.GroupResource][]kind.Object{
		MutatingPolicies(): {p},
		MutatingBindings(): {&admissionv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "p"},
		}},
	}}
}

// TestReinvocationAfterOtherPlugins checks that a policy which has changed nothing runs again if another plugin changes the
// object after it, and only with the reinvocation policy IfNeeded.
func TestReinvocationAfterOtherPlugins(t *testing.T) {
	const note = `has(object.metadata.labels) && 'late' in object.metadata.labels ? [JSONPatch{op: "add", path: "/metadata/labels/found", value: "late"}] : [JSONPatch{op: "replace", path: "/metadata/name", value: object.metadata.name}]`
	for _, c := range []struct {
		again   string
		changes bool
		found   string
	}{
		{"IfNeeded", true, "late"},
		{"IfNeeded", false, ""},
		{"Never", true, ""},
	} {
		s := mutatingSource(t, c.again, note)
		p, _ := Plugins(Config{Validating: s, Mutating: s, Authorizer: caseAuthorizer{}, Types: typesOf(t)})
		a := createDeployment(t)
		a.Def.Default(a.Object)
		a.Final, a.Reinvocation = false, &kind.Reinvocation{}
		if err := p.Admit(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if a.Reinvocation.IsRequested() || a.Patched {
			t.Errorf("%s: a policy that changes nothing requests reinvocation, or counts as a change", c.again)
		}
		if c.changes {
			a.Object.SetLabels(map[string]string{"late": "yes"})
		}
		a.Reinvocation.IsSecondRun = true
		if err := p.Admit(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if got := a.Object.GetLabels()["found"]; got != c.found {
			t.Errorf("%s, changed by others: %t: the second run has found %q, want %q", c.again, c.changes, got, c.found)
		}
	}
}

// TestConnectionsAreNotMutated checks that a connection has no object and no second run.
func TestConnectionsAreNotMutated(t *testing.T) {
	s := mutatingSource(t, "IfNeeded", `[JSONPatch{op: "add", path: "/metadata/labels", value: {"a": "b"}}]`)
	policy := s.objects[MutatingPolicies()][0].(*admissionv1.MutatingAdmissionPolicy)
	policy.Spec.MatchConstraints.ResourceRules[0].Operations = []admissionv1.OperationType{admissionv1.Connect}
	p, _ := Plugins(Config{Validating: s, Mutating: s, Authorizer: caseAuthorizer{}, Types: typesOf(t)})
	a := createDeployment(t)
	a.Verb, a.Object, a.Options, a.Connect = "connect", nil, nil, &metav1.PartialObjectMetadata{}
	if err := p.Admit(t.Context(), a); err != nil {
		t.Error(err)
	}
}
