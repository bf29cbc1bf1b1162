package admissionmatch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"proa.dev/internal/textcase"
	"proa.dev/kinds"
	"proa.dev/kinds/kind"
)

// TestMatch runs the scripts in testdata: criteria in YAML, followed by writes with their results. A write is an
// operation, a version, a resource with its subresource, a namespace or -, a name, and labels of the new and of the old
// object behind + and -.
func TestMatch(t *testing.T) {
	defs := kinds.All()
	textcase.Play(t, "testdata/*.txt", "== ", func(t *testing.T, body string) string {
		text, writes, _ := strings.Cut(body, "--\n")
		c := criteria(t, text)
		out := text + "--\n"
		for line := range strings.Lines(writes) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " => ")
			if line == "" {
				continue
			}
			out += line + " => " + outcome(t, c, write(t, defs, strings.Fields(line))) + "\n"
		}
		return out
	})
}

// criteria decodes the criteria of a policy, or of a webhook if they have rules.
func criteria(t *testing.T, text string) *Criteria {
	t.Helper()
	var in struct {
		admissionv1.MatchResources
		Rules []admissionv1.RuleWithOperations `json:"rules"`
	}
	if err := yaml.UnmarshalStrict([]byte(text), &in); err != nil {
		t.Fatal(err)
	}
	if in.Rules != nil {
		return ForWebhook(in.Rules, in.MatchPolicy, in.NamespaceSelector, in.ObjectSelector)
	}
	return ForPolicy(&in.MatchResources)
}

func outcome(t *testing.T, c *Criteria, a *kind.Admission) string {
	t.Helper()
	if IsExempt(a) {
		return "exempt"
	}
	def, err := c.Matches(t.Context(), a)
	switch {
	case err != nil:
		return err.Error()
	case def == nil:
		return "no"
	case def == a.Served:
		return "yes"
	}
	return fmt.Sprintf("as %s", def.GroupVersionKind)
}

func write(t *testing.T, defs []*kind.Def, words []string) *kind.Admission {
	t.Helper()
	at := slices.Index(words, "in")
	version, resource, sub := words[1], words[2], ""
	resource, sub, _ = strings.Cut(resource, "/")
	a := &kind.Admission{
		Verb: strings.ToLower(words[0]), Sub: sub, Name: words[3], Server: namespaceServer{},
		Versions: func(gr schema.GroupResource) (out []*kind.Def) {
			for _, d := range defs {
				if d.Storage().Resource() == gr {
					out = append(out, d)
				}
			}
			return out
		},
	}
	if at > 0 {
		a.Namespace = words[at+1]
	}
	for _, d := range defs {
		if d.GroupVersion().String() == version && d.Plural == resource {
			a.Served, a.Def = d, d.Storage()
		}
	}
	if a.Def == nil {
		t.Fatalf("%s %s is not served", version, resource)
	}
	for _, w := range words {
		if l, ok := strings.CutPrefix(w, "+"); ok {
			a.Object = a.Def.New()
			label(a.Object, l)
		}
		if l, ok := strings.CutPrefix(w, "-"); ok {
			a.Old = a.Def.New()
			label(a.Old, l)
		}
	}
	return a
}

func label(o kind.Object, text string) {
	if key, value, ok := strings.Cut(text, "="); ok {
		o.SetLabels(map[string]string{key: value})
	}
}

// namespaceServer is a kind.Server with all namespaces whose names begin with "team-", labelled team=NAME.
type namespaceServer struct{ kind.Server }

func (namespaceServer) Get(_ context.Context, gr schema.GroupResource, _, name string) (kind.Object, error) {
	team, ok := strings.CutPrefix(name, "team-")
	if !ok {
		return nil, apierrors.NewNotFound(gr, name)
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}}, nil
}
