package certificates

import (
	certificatesv1 "k8s.io/api/certificates/v1"

	"proa.dev/kinds/kind"
)

// ClusterTrustBundles publish the root certificates of signers.
func ClusterTrustBundles() *kind.Def {
	type bundle = certificatesv1.ClusterTrustBundle
	return kind.Define(kind.Resource[bundle]{
		Group: certificatesv1.GroupName, Version: "v1", Kind: "ClusterTrustBundle", Plural: "clustertrustbundles", Scope: kind.Cluster,
		StoredAs: "v1beta1", Older: kind.SameLayout("v1beta1", "v1alpha1"),
		Name:        anyName, // by its signer, below
		Conditional: true,
		Validate:    validateBundle,
		Fields:      map[string]func(*bundle) string{"spec.signerName": func(b *bundle) string { return b.Spec.SignerName }},
		Columns: []kind.Column[bundle]{
			kind.NameColumn[bundle](),
			{Name: "SignerName", Description: certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"], Value: func(b *bundle) any { return named(b.Spec.SignerName) }},
		},
	})
}
