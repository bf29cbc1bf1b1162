//go:build tools

// Package pins names, in a module of its own, the container runtime that nodes run, so that its versions never meet those
// of the product.
package pins

import (
	_ "github.com/containerd/containerd/v2/cmd/containerd"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
)
