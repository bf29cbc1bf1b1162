package crdvalidation

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"testing"

	"proa.dev/kinds/apiextensions"
	"proa.dev/kinds/kind/kindtest"
)

func TestKinds(t *testing.T) {
	check := func(c, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
		return Validate(t.Context(), c, old)
	}
	kindtest.Run(t, apiextensions.All(apiextensions.Hooks{Validate: check, Warn: Warn}), "testdata")
}
