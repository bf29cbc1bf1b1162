//go:build tools

// Package certmanager pins the cert-manager that tests install: the last minor version whose programs are part of its module. Those of later ones are
// modules of their own, of which no version is published.
package certmanager

import (
	_ "github.com/cert-manager/cert-manager/cmd/cainjector"
	_ "github.com/cert-manager/cert-manager/cmd/controller"
	_ "github.com/cert-manager/cert-manager/cmd/ctl"
	_ "github.com/cert-manager/cert-manager/cmd/webhook"
)
