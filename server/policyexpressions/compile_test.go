package policyexpressions

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/admissionregistration"
	"proa.dev/kinds/kind/kindtest"
)

func TestKinds(t *testing.T) {
	kindtest.Run(t, admissionregistration.All(admissionregistration.Hooks{Compile: Compiler()}), "testdata")
}

// FuzzCompile compiles arbitrary expressions: they are valid or invalid, and nothing panics.
func FuzzCompile(f *testing.F) {
	for _, text := range []string{"object.metadata.name == 'a'", "[1, 2].all(x, x > 0)", "object.", "Object{a: 1}", "quantity('1Gi')",
		"{'a': b}", "\"\\u12\"", "variables.a"} {
		f.Add(text)
	}
	start := Compiler()
	f.Fuzz(func(t *testing.T, text string) {
		for _, composed := range []bool{false, true} {
			check := start(composed)
			for use := admissionregistration.Match; use <= admissionregistration.Patch; use++ {
				if use == admissionregistration.Variable && !composed {
					continue
				}
				e := admissionregistration.Expression{Use: use, Text: text, Show: text, Name: "a"}
				if err := check(field.NewPath("x"), e); err != nil && err.Type != field.ErrorTypeInvalid {
					t.Errorf("%q: %v", text, err)
				}
			}
		}
	})
}
