// Package certificates holds the kinds of the certificates.k8s.io group.
package certificates

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All() []*kind.Def {
	return []*kind.Def{
		CertificateSigningRequests(),
		ClusterTrustBundles(),
		PodCertificateRequests(),
	}
}
