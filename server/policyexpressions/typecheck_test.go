package policyexpressions

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"proa.dev/internal/textcase"
	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/server/openapi"
)

// TestTypeCheck checks the warnings about the expressions of policies. They were recorded from upstream, except for the
// numbers in the names of types. Rules are written as groups/versions/resources, each joined with a plus.
func TestTypeCheck(t *testing.T) {
	defs := kinds.All()
	docs := serveDocuments(t, defs)
	textcase.Play(t, "testdata/types/*.txt", "== ", func(t *testing.T, body string) string {
		in, _, _ := strings.Cut(body, "-- warnings\n")
		got, err := TypeCheck(t.Context(), policy(t, in), Published(kinds.All, docs))
		if err != nil {
			t.Fatal(err)
		}
		out := ""
		if got != nil {
			text, err := yaml.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			out = string(text)
		}
		return in + "-- warnings\n" + out
	})
}

func policy(t *testing.T, text string) *admissionv1.ValidatingAdmissionPolicy {
	t.Helper()
	var short struct{ Rules []string }
	p := &admissionv1.ValidatingAdmissionPolicy{}
	if err := yaml.Unmarshal([]byte(text), &p.Spec); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(text), &short); err != nil {
		t.Fatal(err)
	}
	p.Spec.MatchConstraints = &admissionv1.MatchResources{}
	for _, r := range short.Rules {
		part := strings.SplitN(r, "/", 3)
		split := func(i int) []string { return strings.Split(part[i], "+") }
		p.Spec.MatchConstraints.ResourceRules = append(p.Spec.MatchConstraints.ResourceRules, admissionv1.NamedRuleWithOperations{
			RuleWithOperations: admissionv1.RuleWithOperations{Rule: admissionv1.Rule{APIGroups: split(0), APIVersions: split(1),
				Resources: split(2)}},
		})
	}
	return p
}

// serveDocuments serves the documents of all kinds as a server does.
func serveDocuments(t *testing.T, defs []*kind.Def) http.Handler {
	t.Helper()
	var resources []openapi.Resource
	for _, d := range defs {
		resources = append(resources, openapi.Resource{
			Group: d.Group, Version: d.Version, Kind: d.Kind, Plural: d.Plural, Singular: d.Singular,
			Namespaced: d.Scope == kind.Namespaced, Verbs: d.Verbs,
		})
	}
	return openapi.New(openapi.Options{Resources: resources, Version: "1.37"}).Handler(nil)
}

// TestPolicyWithoutKindNeedsNoTypes checks that nothing is read or compiled for a policy that names no kind.
func TestPolicyWithoutKindNeedsNoTypes(t *testing.T) {
	p := policy(t, "rules: ['*/v1/deployments', 'apps/v1/*', 'apps/v1/things']\nvalidations: [{expression: object.nothing}]")
	types := Published(kinds.All, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s is read", r.URL) }))
	if got, err := TypeCheck(t.Context(), p, types); err != nil || got != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestSchemasAreMissing checks that a policy is checked later when schemas cannot be read, and not at all when there are
// none.
func TestSchemasAreMissing(t *testing.T) {
	p := policy(t, "rules: [apps/v1/deployments]\nparamKind: {apiVersion: example.com/v1, kind: Thing}\nvalidations: [{expression: object.nothing}]")
	for code, bad := range map[int]bool{http.StatusNotFound: false, http.StatusServiceUnavailable: true} {
		docs := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "{}", code) })
		if got, err := TypeCheck(t.Context(), p, Published(kinds.All, docs)); got != nil || (err != nil) != bad {
			t.Errorf("%d: got %v, %v", code, got, err)
		}
	}
}

// TestEveryKindHasAType checks that there is a type for each served kind.
func TestEveryKindHasAType(t *testing.T) {
	defs := kinds.All()
	types := Published(kinds.All, serveDocuments(t, defs))
	for _, d := range defs {
		s, err := types.Schema(t.Context(), d.GroupVersionKind)
		if err != nil {
			t.Fatal(err)
		}
		if s == nil || declType(s, d.Kind) == nil {
			t.Errorf("%s has no type", d.GroupVersionKind)
		}
	}
	if s, err := types.Schema(t.Context(), schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Thing"}); s != nil || err != nil {
		t.Errorf("a kind that there is not has a schema: %v, %v", s, err)
	}
}

// TestTypeCheckIsCanceled checks that a type check ends with its context.
func TestTypeCheckIsCanceled(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	defs := kinds.All()
	p := policy(t, "rules: [apps/v1/deployments]\nvalidations: [{expression: object.nothing}]")
	if got, err := TypeCheck(ctx, p, Published(kinds.All, serveDocuments(t, defs))); got != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v", got, err)
	}
}
