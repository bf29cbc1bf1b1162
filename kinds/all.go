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
	"proa.dev/kinds/discovery"
	"proa.dev/kinds/events"
	"proa.dev/kinds/flowcontrol"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/networking"
	"proa.dev/kinds/node"
	"proa.dev/kinds/policy"
	"proa.dev/kinds/rbac"
	"proa.dev/kinds/resource"
	"proa.dev/kinds/scheduling"
	"proa.dev/kinds/storage"
	"proa.dev/kinds/storagemigration"
)

// All lists every built-in resource.
func All() []*kind.Def {
	stored := core.All()
	return slices.Concat(
		stored,
		events.All(stored),
		coordination.All(),
		node.All(),
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
		resource.All(resource.Hooks{}),
		storagemigration.All(),
		apiextensions.All(),
		apiregistration.All(),
		admissionregistration.All(admissionregistration.Hooks{}),
	)
}
