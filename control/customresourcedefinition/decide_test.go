package customresourcedefinition

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/internal/textcase"
)

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// shortDefinition describes a definition in a case.
type shortDefinition struct {
	Names, Accepted apiextensionsv1.CustomResourceDefinitionNames
	Age             int // in seconds
	Group, Approved string
	Preserve        bool
	Schema          *apiextensionsv1.JSONSchemaProps
	CABundle        string
	Conditions      []apiextensionsv1.CustomResourceDefinitionCondition
}

// definition returns the definition as the server would store it.
func (s *shortDefinition) definition() *crd {
	if s.Group == "" {
		s.Group = "example.com"
	}
	c := &crd{}
	c.Name = s.Names.Plural + "." + s.Group
	c.CreationTimestamp = metav1.NewTime(epoch.Add(-time.Duration(s.Age) * time.Second))
	c.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: s.Group, Names: s.Names, PreserveUnknownFields: s.Preserve, Conversion: &apiextensionsv1.CustomResourceConversion{},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1",
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: s.Schema}}},
	}
	if s.Schema == nil {
		c.Spec.Versions[0].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{Type: "object"}
	}
	if s.CABundle != "" {
		c.Spec.Conversion.Webhook = &apiextensionsv1.WebhookConversion{
			ClientConfig: &apiextensionsv1.WebhookClientConfig{CABundle: []byte(s.CABundle)}}
	}
	if s.Approved != "" {
		c.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: s.Approved}
	}
	for _, n := range []*apiextensionsv1.CustomResourceDefinitionNames{&c.Spec.Names, &s.Accepted} {
		if n.Singular == "" {
			n.Singular = strings.ToLower(n.Kind)
		}
		if n.ListKind == "" && n.Kind != "" {
			n.ListKind = n.Kind + "List"
		}
	}
	c.Status.AcceptedNames, c.Status.Conditions = s.Accepted, s.Conditions
	return c
}

// TestDecide calls decide for groups of definitions, repeatedly until nothing changes.
func TestDecide(t *testing.T) {
	textcase.Decide(t, "testdata/decide.txt", "--", func(t *testing.T, in string) string {
		var shorts []shortDefinition
		if err := yaml.UnmarshalStrict([]byte(in), &shorts); err != nil {
			t.Fatal(err)
		}
		var group []*crd
		for _, s := range shorts {
			group = append(group, s.definition())
		}
		var out strings.Builder
		for round := 1; ; round++ {
			changed := decide(group, metav1.NewTime(epoch.Add(time.Duration(round)*time.Second)))
			if len(changed) == 0 {
				return out.String()
			}
			fmt.Fprintf(&out, "round %d\n", round)
			for _, c := range changed {
				out.WriteString(describe(c))
				group[slices.IndexFunc(group, func(o *crd) bool { return o.Name == c.Name })] = c
			}
			if round > 9 {
				t.Fatalf("changes do not end:\n%s", out.String())
			}
		}
	})
}

func describe(c *crd) string {
	n := c.Status.AcceptedNames
	out := fmt.Sprintf("%s: %q %q %q %q %q %q\n", c.Name, n.Plural, n.Singular, n.ShortNames, n.Kind, n.ListKind, n.Categories)
	for _, x := range c.Status.Conditions {
		out += fmt.Sprintf("  %s %s %s %s: %s\n", x.LastTransitionTime.UTC().Format(":05"), x.Type, x.Status, x.Reason, x.Message)
	}
	return out
}

// TestDecideDoesNotChangeItsInput checks that decide does not change the definitions it gets, which a view shares.
func TestDecideDoesNotChangeItsInput(t *testing.T) {
	s := shortDefinition{Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "toys", Kind: "Toy", ShortNames: []string{"ty"},
		Categories: []string{"all"}}}
	c := s.definition()
	before := c.DeepCopy()
	for _, next := range decide([]*crd{c}, metav1.NewTime(epoch)) {
		next.Status.AcceptedNames.ShortNames[0], next.Status.AcceptedNames.Categories[0] = "other", "other"
	}
	if a, b := fmt.Sprint(before), fmt.Sprint(c); a != b {
		t.Errorf("it was %s and is %s", a, b)
	}
}

// TestConcernsNames checks that the controller is woken by changes that affect the names of a group, and not by its own
// writes.
func TestConcernsNames(t *testing.T) {
	s := shortDefinition{Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "toys", Kind: "Toy"}}
	created := s.definition()
	accepted := decide([]*crd{created}, metav1.NewTime(epoch))[0]
	if !concernsNames(nil, created) || !concernsNames(accepted, nil) {
		t.Error("a new or deleted definition does not wake its group")
	}
	if concernsNames(created, accepted) {
		t.Error("the first status of a definition wakes its group")
	}
	for what, change := range map[string]func(*crd){
		"another spec": func(c *crd) { c.Generation++ },
		"an approval": func(c *crd) {
			c.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "https://k8s.io"}
		},
		"a name given up":       func(c *crd) { c.Status.AcceptedNames.Kind = "Other" },
		"names that are gone":   func(c *crd) { c.Status.AcceptedNames = apiextensionsv1.CustomResourceDefinitionNames{} },
		"a lost condition":      func(c *crd) { c.Status.Conditions = c.Status.Conditions[:1] },
		"established no longer": func(c *crd) { c.Status.Conditions[1].Status = apiextensionsv1.ConditionFalse },
	} {
		next := accepted.DeepCopy()
		change(next)
		if !concernsNames(accepted, next) {
			t.Errorf("%s does not wake the group", what)
		}
	}
	labelled := accepted.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	if concernsNames(accepted, labelled) {
		t.Error("a label wakes the group")
	}
}

// BenchmarkDecide decides about one new definition in a group of a thousand.
func BenchmarkDecide(b *testing.B) {
	var group []*crd
	for i := range 1000 {
		s := shortDefinition{Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: fmt.Sprintf("toys%d", i),
			Kind: fmt.Sprintf("Toy%d", i)}}
		group = append(group, s.definition())
	}
	for i, c := range decide(group[1:], metav1.NewTime(epoch)) {
		group[i+1] = c
	}
	for b.Loop() {
		if len(decide(group, metav1.NewTime(epoch))) != 1 {
			b.Fatal("there is one new definition")
		}
	}
}
