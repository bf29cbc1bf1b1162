// Package definition gives custom resource definitions their status and lets those go that are being deleted.
//
// The first loop decides which names a definition gets, and so whether its resource is served: names are unique in a group, and who had
// them first keeps them. Its keys are groups, so that a thousand definitions of one group that come at once are decided together.
// The second loop deletes the objects of a definition that is being deleted, and then removes its finalizer.
package definition

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
)

// crd is short for the kind that this package is about.
type crd = apiextensionsv1.CustomResourceDefinition

// Controllers returns the loops. isBuiltIn says that a resource is served whether or not it has a definition.
func Controllers(isBuiltIn func(schema.GroupResource) bool) []control.Controller {
	return []control.Controller{statusController(), cleanupController(isBuiltIn)}
}
