//go:build tools

// Package helm pins the Helm that charts are installed with in tests.
package helm

import _ "helm.sh/helm/v4/cmd/helm"
