//go:build release

package carry

import _ "embed" // for the programs

//go:embed parts.bin
var carried []byte

// Carried is the set that this release carries.
func Carried() (*Set, error) { return Open(carried) }
