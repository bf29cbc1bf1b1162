// Package controllerlease decides which Lease the controllers of a server contend for where several servers share an etcd.
package controllerlease

import (
	"slices"

	"proa.dev/control"
)

const (
	// Manager is the Lease of the controllers that upstream's controller manager has too, under the name that it uses.
	Manager = "kube-controller-manager"
	// Own is the Lease of servers that run no controller of upstream's manager, so that the manager can lead beside them.
	Own = "proa-controllers"
)

// Name returns the Lease that a server must hold to run these controllers; empty if there are none.
func Name(all []control.Controller) string {
	switch {
	case len(all) == 0:
		return ""
	case slices.ContainsFunc(all, func(c control.Controller) bool { return !slices.Contains(Additional(), c.Name) }):
		return Manager
	}
	return Own
}

// Additional returns the controllers that upstream's controller manager does not have: there they are part of the API server
// or of a cloud's manager, or do not exist. The certificate-controller is among them because nodes cannot join without it; it does
// what three controllers of the manager do and more, and these are switched off there.
func Additional() []string {
	return []string{
		"aggregated-availability-controller", "autoregister", "certificate-controller", "cluster-authentication-trust-controller",
		"crd-finalizer", "kubelet-serving-clustertrustbundle-publisher",
		"crd-status-controller", "flow-schema-config-producer", "flow-schema-controller",
		"legacy-service-account-token-tracking-controller", "local-availability-controller", "priority-level-config-producer",
		"service-controller", "cluster-settings-publisher", "foreign-endpoints-controller", "local-path-provisioner",
		"local-path-remover", "simulated-nodes", "simulated-pods",
	}
}
