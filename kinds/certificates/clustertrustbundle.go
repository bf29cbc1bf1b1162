package certificates

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// ClusterTrustBundles publish the root certificates of signers.
func ClusterTrustBundles() *kind.Def {
	type bundle = certificatesv1.ClusterTrustBundle
	return kind.Define(kind.Resource[bundle]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: certificatesv1.GroupName, Version: "v1", Kind: "ClusterTrustBundle"},
			Plural:           "clustertrustbundles", Scope: kind.Cluster,
			StorageVersion: "v1beta1", Older: kind.SameLayout("v1beta1", "v1alpha1"),
			RequiresResourceVersion: true,
		},
		Name:     anyName, // validated with the name of the signer
		Validate: validateBundle,
		Fields:   map[string]func(*bundle) string{"spec.signerName": func(b *bundle) string { return b.Spec.SignerName }},
		Columns: []kind.Column[bundle]{
			kind.NameColumn[bundle](),
			{Name: "SignerName", Description: certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"],
				Value: func(b *bundle) any { return orNone(b.Spec.SignerName) }},
		},
	})
}
