//go:build tools

// Package pins names, in a module of its own, the program that makes containers, so that its versions never meet those of
// the product.
package pins

import (
	_ "github.com/opencontainers/runc"
)
