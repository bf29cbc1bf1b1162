// Package batch holds the kinds of the batch group: work that ends.
package batch

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All() []*kind.Def {
	return []*kind.Def{
		Jobs(),
		CronJobs(),
	}
}
