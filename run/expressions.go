package run

import (
	"proa.dev/kinds"
	"proa.dev/kinds/resource"
	"proa.dev/server/devices"
)

// hooks are what kinds ask the server about: expressions.
func hooks() kinds.Hooks {
	return kinds.Hooks{Resource: resource.Hooks{Selector: devices.Check}}
}
