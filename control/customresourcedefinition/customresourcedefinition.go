// Package customresourcedefinition has the controllers that write the status of CustomResourceDefinitions and finalize those
// that are being deleted.
//
// The status controller decides which names a definition gets, and so whether its resource is served: names are unique in a
// group, and the definition that had a name first keeps it. Its keys are groups, so that a thousand new definitions of one
// group are decided together. The cleanup controller deletes the objects of a definition that is being deleted, and then
// removes its finalizer.
package customresourcedefinition

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
)

// crd abbreviates CustomResourceDefinition.
type crd = apiextensionsv1.CustomResourceDefinition

// Controllers returns the controllers. isBuiltIn reports whether a resource is served even without a definition.
func Controllers(isBuiltIn func(schema.GroupResource) bool) []control.Controller {
	return []control.Controller{statusController(), cleanupController(isBuiltIn)}
}
