// Package kinds is the table of every built-in resource: one line a group here, one line a kind in the
// group's all.go, one file a kind beside it.
package kinds

import (
	"slices"

	"proa.dev/kinds/coordination"
	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
)

// All lists every built-in resource.
func All() []*kind.Def {
	return slices.Concat(
		core.All(),
		coordination.All(),
	)
}
