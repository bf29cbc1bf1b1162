// Package kinds is the table of every built-in resource: one line a group here, one line a kind in the
// group's all.go, one file a kind beside it.
package kinds

import (
	"slices"

	"proa.dev/kinds/admissionregistration"
	"proa.dev/kinds/apiextensions"
	"proa.dev/kinds/apiregistration"
	"proa.dev/kinds/apps"
	"proa.dev/kinds/authentication"
	"proa.dev/kinds/authorization"
	"proa.dev/kinds/autoscaling"
	"proa.dev/kinds/batch"
	"proa.dev/kinds/certificates"
	"proa.dev/kinds/coordination"
	"proa.dev/kinds/core"
	"proa.dev/kinds/core/nodekind"
	"proa.dev/kinds/discovery"
	"proa.dev/kinds/events"
	"proa.dev/kinds/flowcontrol"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/networking"
	"proa.dev/kinds/nodeapi"
	"proa.dev/kinds/policy"
	"proa.dev/kinds/rbac"
	"proa.dev/kinds/resource"
	"proa.dev/kinds/scheduling"
	"proa.dev/kinds/storage"
	"proa.dev/kinds/storagemigration"
)

// Hooks are functions and settings of the server that some kinds need: compilers of expressions, checks of schemas,
// the ranges of Pod addresses. Without them those parts of objects are not checked.
type Hooks struct {
	Admission  admissionregistration.Hooks
	Core       nodekind.Hooks
	Definition apiextensions.Hooks
	Resource   resource.Hooks
}

// All lists every built-in resource, without hooks.
func All() []*kind.Def { return AllWith(Hooks{}) }

// AllWith lists every built-in resource.
func AllWith(h Hooks) []*kind.Def {
	stored := core.AllWith(h.Core)
	return slices.Concat(
		stored,
		events.All(stored),
		coordination.All(),
		nodeapi.All(),
		scheduling.All(),
		discovery.All(),
		networking.All(),
		policy.All(),
		autoscaling.All(),
		batch.All(),
		apps.All(),
		rbac.All(),
		storage.All(),
		certificates.All(),
		flowcontrol.All(),
		authentication.All(),
		authorization.All(),
		resource.All(h.Resource),
		storagemigration.All(),
		apiextensions.All(h.Definition),
		apiregistration.All(),
		admissionregistration.All(h.Admission),
	)
}
