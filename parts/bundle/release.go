//go:build release

package bundle

import _ "embed" // for the programs

//go:embed parts.bin
var carried []byte

// Carried returns the set that this release carries.
func Carried() (*Set, error) { return Open(carried) }
