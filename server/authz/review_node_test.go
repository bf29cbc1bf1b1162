package authz_test

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/server/authz"
	"proa.dev/server/authz/bootstrappolicy"
)

// TestNodeReviewsWithSelectorOperators checks that reviews, which write selectors with operators, get the decision that the
// request itself would get: only a list that is limited to the pods of the node is allowed.
func TestNodeReviewsWithSelectorOperators(t *testing.T) {
	policy, err := bootstrappolicy.Default()
	if err != nil {
		t.Fatal(err)
	}
	node := authz.NewNode(newScriptCluster(t, "-- policy --\n-- objects --\n"), policy.NodeRules())
	is := func(op metav1.FieldSelectorOperator, values ...string) metav1.FieldSelectorRequirement {
		return metav1.FieldSelectorRequirement{Key: "spec.nodeName", Operator: op, Values: values}
	}
	for _, tt := range []struct {
		name    string
		raw     string
		are     []metav1.FieldSelectorRequirement
		allowed bool
	}{
		{"in its own name", "", []metav1.FieldSelectorRequirement{is(metav1.FieldSelectorOpIn, "a")}, true},
		{"in its own name and another node's", "", []metav1.FieldSelectorRequirement{is(metav1.FieldSelectorOpIn, "a", "b")}, false},
		{"in another node's name", "", []metav1.FieldSelectorRequirement{is(metav1.FieldSelectorOpIn, "b")}, false},
		{"in none", "", []metav1.FieldSelectorRequirement{is(metav1.FieldSelectorOpIn)}, false},
		{"not in its own name", "", []metav1.FieldSelectorRequirement{is(metav1.FieldSelectorOpNotIn, "a")}, false},
		{"not in another node's name", "", []metav1.FieldSelectorRequirement{is(metav1.FieldSelectorOpNotIn, "b")}, false},
		{"exists", "", []metav1.FieldSelectorRequirement{is(metav1.FieldSelectorOpExists)}, false},
		{"both", "", []metav1.FieldSelectorRequirement{is(metav1.FieldSelectorOpIn, "a"), is(metav1.FieldSelectorOpIn, "b")}, true},
		{"text", "spec.nodeName=a", nil, true},
		{"text with two", "spec.nodeName!=b,spec.nodeName=a", nil, true},
		{"text with in", "spec.nodeName in (a)", nil, false},
		{"text of another", "spec.nodeName=b", nil, false},
		{"nothing", "", nil, false},
	} {
		spec := &authorizationv1.SubjectAccessReviewSpec{User: "system:node:a", Groups: []string{"system:nodes"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "list", Version: "v1", Resource: "pods",
				FieldSelector: &authorizationv1.FieldSelectorAttributes{RawSelector: tt.raw, Requirements: tt.are},
			}}
		if got := authz.AnswerReview(t.Context(), node, authz.AttributesOfReview(spec)); got.Allowed != tt.allowed {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}
