package proatest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

// The definition and the policies of TestPoliciesOfCustomObjects. One expression of the policy "small" misspells a field.
const (
	limitDefinition = `
metadata: {name: limits.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: limits, singular: limit, kind: Limit, listKind: LimitList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              most: {type: integer}
              unit: {type: string, default: keys}
              owners: {type: array, items: {type: string}, x-kubernetes-list-type: set}
`
	fewKeys = `
metadata: {name: keys}
spec:
  paramKind: {apiVersion: example.com/v1, kind: Limit}
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: size(object.data) <= params.spec.most, messageExpression: "'at most ' + string(params.spec.most) + ' ' + params.spec.unit"}]
`
	smallLimits = `
metadata: {name: small}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: ["*"], resources: [limits]}]}
  validations: [{expression: object.spec.most < 10, message: too much}, {expression: '!has(object.spec.unitt)'}]
`
	ownedLimits = `
metadata: {name: owned}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: ["*"], resources: [limits]}]}
  mutations:
  - {patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{spec: Object.spec{owners: ["policy"]}}'}}
  - {patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "add", path: "/spec/unknown", value: 1}]'}}
`
)

// TestPoliciesOfCustomObjects uses custom objects as parameters of a policy, and as objects that policies reject and mutate, with
// the types of their definition.
func TestPoliciesOfCustomObjects(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
		defer c.Stop()
		settle := func() {
			time.Sleep(5 * time.Second)
			synctest.Wait()
		}
		expect := func(what, want string, err error) {
			t.Helper()
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", what, err, want)
			}
		}
		definitions := schema.GroupResource{Group: apiextensionsv1.GroupName, Resource: "customresourcedefinitions"}
		expect("the definition", "", create(t, c, definitions, &apiextensionsv1.CustomResourceDefinition{}, limitDefinition))
		settle()
		bindings := registration("validatingadmissionpolicybindings")
		for what, err := range map[string]error{
			"few keys": create(t, c, gr.ValidatingAdmissionPolicies, &admissionv1.ValidatingAdmissionPolicy{}, fewKeys),
			"its binding": create(t, c, bindings, &admissionv1.ValidatingAdmissionPolicyBinding{},
				"metadata: {name: keys}\nspec: {policyName: keys, validationActions: [Deny], paramRef: {name: keys, parameterNotFoundAction: Allow}}"),
			"small limits": create(t, c, gr.ValidatingAdmissionPolicies, &admissionv1.ValidatingAdmissionPolicy{}, smallLimits),
			"their binding": create(t, c, bindings, &admissionv1.ValidatingAdmissionPolicyBinding{},
				"metadata: {name: small}\nspec: {policyName: small, validationActions: [Deny]}"),
			"owned limits": create(t, c, registration("mutatingadmissionpolicies"), &admissionv1.MutatingAdmissionPolicy{}, ownedLimits),
			"the binding of these": create(t, c, registration("mutatingadmissionpolicybindings"),
				&admissionv1.MutatingAdmissionPolicyBinding{},
				"metadata: {name: owned}\nspec: {policyName: owned}"),
		} {
			expect(what, "", err)
		}
		settle()
		limits := schema.GroupResource{Group: "example.com", Resource: "limits"}
		limit := func(most string) error {
			return create(t, c, limits, &unstructured.Unstructured{},
				"apiVersion: example.com/v1\nkind: Limit\nmetadata: {name: keys, namespace: default}\nspec: {most: "+most+", owners: [user]}")
		}
		two := func(name string) error {
			return create(t, c, gr.ConfigMaps, &corev1.ConfigMap{}, "metadata: {name: "+name+", namespace: default}\ndata: {a: b, c: d}")
		}
		expect("two keys without a limit", "", two("a"))
		expect("a large limit", "denied request: too much", limit("10"))
		expect("a small limit", "", limit("1"))
		expect("two keys with a limit", "denied request: at most 1 keys", two("b"))
		made, err := c.Client.Get(t.Context(), limits, "default", "keys", "")
		if err != nil {
			t.Fatal(err)
		}
		if owners, _, _ := unstructured.NestedStringSlice(made.(*unstructured.Unstructured).Object, "spec", "owners"); strings.Join(owners,
			" ") != "user policy" {
			t.Errorf("the owners are %q, want the set of both", owners)
		}
		if _, found, _ := unstructured.NestedFieldNoCopy(made.(*unstructured.Unstructured).Object, "spec", "unknown"); found {
			t.Error("a policy has added a field that the definition does not know")
		}
		checked, err := c.Client.Get(t.Context(), gr.ValidatingAdmissionPolicies, "", "small", "")
		if err != nil {
			t.Fatal(err)
		}
		types := checked.(*admissionv1.ValidatingAdmissionPolicy).Status.TypeChecking
		if types == nil || len(types.ExpressionWarnings) != 1 ||
			!strings.Contains(types.ExpressionWarnings[0].Warning, "undefined field 'unitt'") {
			t.Errorf("the expressions are checked against the definition as %+v", types)
		}
	})
}
