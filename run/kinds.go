package run

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds"
	"proa.dev/kinds/admissionregistration"
	"proa.dev/kinds/apiextensions"
	"proa.dev/kinds/core/nodekind"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/resource"
	"proa.dev/run/settings"
	"proa.dev/server/crdvalidation"
	"proa.dev/server/deviceselector"
	"proa.dev/server/policyexpressions"
)

// kinds returns the resources that are served: the built-in ones and, if the feature is enabled, those of gang
// scheduling.
func (c *Config) kinds() []*kind.Def {
	var all []*kind.Def
	all = kinds.AllWith(kinds.Hooks{
		Admission: admissionregistration.Hooks{Compile: policyexpressions.Compiler(),
			Resource: func(k schema.GroupVersionKind) (string, bool) { return resourceOf(all, k) }},
		Core:     nodekind.Hooks{PodRanges: c.allocated()},
		Resource: resource.Hooks{Selector: deviceselector.Check},
		Definition: apiextensions.Hooks{
			Validate: func(c, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
				return crdvalidation.Validate(context.Background(), c, old) // the library wants a context, and nothing in it
			},
			Warn: crdvalidation.Warn,
		},
	})
	if c.FeatureEnabled(settings.GangScheduling) {
		return kinds.WithGangs(all)
	}
	return all
}

// resourceOf returns the name of the resource of a kind.
func resourceOf(all []*kind.Def, k schema.GroupVersionKind) (string, bool) {
	for _, d := range all {
		if d.GroupVersionKind == k {
			return d.Resource().Resource, true
		}
	}
	return "", false
}
