//go:build tools

// Package helm3 pins the Helm of the series before, which writes by other kinds of patches.
package helm3

import _ "helm.sh/helm/v3/cmd/helm"
