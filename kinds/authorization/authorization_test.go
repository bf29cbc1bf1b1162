package authorization

import (
	"context"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/kind"
)

// fakeServer answers every review with what it was asked.
type fakeServer struct {
	kind.Server
	asked authorizationv1.SubjectAccessReviewSpec
}

func (d *fakeServer) User() user.Info {
	return &user.DefaultInfo{Name: "bob", UID: "u", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}}
}

func (d *fakeServer) ReviewAccess(_ context.Context,
	spec authorizationv1.SubjectAccessReviewSpec) authorizationv1.SubjectAccessReviewStatus {
	d.asked = spec
	return authorizationv1.SubjectAccessReviewStatus{Allowed: true}
}

func (d *fakeServer) ReviewRules(context.Context, string) authorizationv1.SubjectRulesReviewStatus {
	return authorizationv1.SubjectRulesReviewStatus{Incomplete: true}
}

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name string
		def  *kind.Def
		body string
		want string // a part of the error; empty: an answer
	}{
		{"a user", SubjectAccessReviews(), `{spec: {user: a, resourceAttributes: {verb: get}}}`, ""},
		{"no user", SubjectAccessReviews(), `{spec: {resourceAttributes: {verb: get}}}`, `.authorization.k8s.io "" is invalid: spec.user: Invalid value: "": at least one of user or group must be specified`},
		{"two questions", SubjectAccessReviews(), `{spec: {user: a, resourceAttributes: {}, nonResourceAttributes: {path: /a}}}`,
			`spec: Invalid value: {"Path":"/a","Verb":""}: exactly one of nonResourceAttributes or resourceAttributes must be specified`},
		{"named", SubjectAccessReviews(), `{metadata: {name: x}, spec: {user: a, resourceAttributes: {}}}`,
			`metadata: Invalid value: {"name":"x"}: must be empty`},
		{"myself", SelfSubjectAccessReviews(), `{spec: {nonResourceAttributes: {path: /a}}}`, ""},
		{"nothing", SelfSubjectAccessReviews(), `{spec: {}}`, `spec: Invalid value: null: exactly one of`},
		{"empty selectors", SelfSubjectAccessReviews(), `{spec: {resourceAttributes: {fieldSelector: {}, labelSelector: {rawSelector: a, requirements: [{key: a, operator: In, values: [b]}]}}}}`,
			"spec.resourceAttributes.fieldSelector.requirements: Required value: when spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required"},
		{"both selectors", SelfSubjectAccessReviews(), `{spec: {resourceAttributes: {labelSelector: {rawSelector: a, requirements: [{key: a, operator: In, values: [b]}]}}}}`,
			`spec.resourceAttributes.labelSelector.rawSelector: Invalid value: "a": may not specified at the same time as requirements`},
		{"here", LocalSubjectAccessReviews(), `{metadata: {namespace: n1}, spec: {user: a, resourceAttributes: {namespace: n1}}}`, ""},
		{"elsewhere", LocalSubjectAccessReviews(), `{metadata: {namespace: n1}, spec: {user: a, resourceAttributes: {namespace: other}}}`, `spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace`},
		{"nowhere", LocalSubjectAccessReviews(), `{metadata: {namespace: n1, name: x}, spec: {user: a, nonResourceAttributes: {}}}`, `must be empty except for namespace`},
		{"rules", SelfSubjectRulesReviews(), `{spec: {namespace: a}}`, ""},
		{"rules of nothing", SelfSubjectRulesReviews(), `{}`, "no namespace on request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			obj := c.def.New()
			if err := yaml.UnmarshalStrict([]byte(c.body), obj); err != nil {
				t.Fatal(err)
			}
			d := &fakeServer{}
			err := c.def.Answer(t.Context(), d, obj)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if r, ok := obj.(*authorizationv1.SelfSubjectAccessReview); ok && err == nil &&
				(!r.Status.Allowed || d.asked.User != "bob" || d.asked.Extra["k"][0] != "v") {
				t.Errorf("asked %+v, answered %+v", d.asked, r.Status)
			}
			if r, ok := obj.(*authorizationv1.SelfSubjectRulesReview); ok && err == nil &&
				(r.Spec.Namespace != "" || !r.Status.Incomplete) {
				t.Errorf("answered %+v", r)
			}
		})
	}
}
