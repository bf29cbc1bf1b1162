// Package nodejoin has what the parts of the system share about nodes that join a cluster with a bootstrap token: how a token is
// restricted to one node, how the user of such a token is marked, and which names no node may have.
package nodejoin

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"proa.dev/kinds/lib/nodeaddress"
)

const (
	// NodeSecretKey is the key in the Secret of a bootstrap token that names the only node the token joins. A Secret without it
	// joins any node whose name is new.
	NodeSecretKey = "node"
	// NodeExtra is the key in the extra of a user that names the node its bootstrap token was made for. The API server copies
	// the extra of whoever creates a CertificateSigningRequest into spec.extra, where the approver reads it.
	NodeExtra = "authentication.proa.dev/node"
	// UserPrefix begins the user names of bearers of bootstrap tokens.
	UserPrefix = "system:bootstrap:"
	// Group is the group that all bearers of bootstrap tokens are in.
	Group = "system:bootstrappers"
)

// IsBootstrap reports whether a user authenticated with a bootstrap token, or with a credential that stands for one.
func IsBootstrap(name string, groups []string) bool {
	return strings.HasPrefix(name, UserPrefix) || slices.ContainsFunc(groups, func(g string) bool {
		return g == Group || strings.HasPrefix(g, Group+":")
	})
}

// CheckName returns why a node that joins cannot have a name; empty if it can. The names of the API server and of
// Services, and those of a machine for itself, are reserved: the name of a node gets into its certificates, and
// clients would take the node for the owner of that name.
func CheckName(name string) string {
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return wrong[0]
	}
	if ip, err := netip.ParseAddr(name); err == nil && !ip.IsGlobalUnicast() {
		return "it is an address that means another machine, or this one, to everybody"
	}
	return nodeaddress.ReservedName(name, "")
}
