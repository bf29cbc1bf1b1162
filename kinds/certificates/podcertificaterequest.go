package certificates

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// PodCertificateRequests ask a signer for the certificate of a pod. Nodes create them.
func PodCertificateRequests() *kind.Def {
	type request = certificatesv1.PodCertificateRequest
	doc := certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()
	return kind.Define(kind.Resource[request]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: certificatesv1.GroupName, Version: "v1", Kind: "PodCertificateRequest"},
			Plural:           "podcertificaterequests",
			StorageVersion:   "v1beta1",
			// but for the fields of a key without a signing request, which v1 does not have
			Older:                   kind.SameLayout("v1beta1"),
			RequiresResourceVersion: true,
		},
		Spec:   func(r *request) any { return &r.Spec },
		Status: func(r *request) any { return &r.Status },
		Default: func(r *request) {
			if r.Spec.MaxExpirationSeconds == nil {
				r.Spec.MaxExpirationSeconds = new(int32(86400))
			}
		},
		Validate: validatePodRequest,
		Subs: []kind.Sub[request]{{
			Name:     "status",
			Reset:    []string{"metadata", "spec"},
			Prepare:  func(r, old *request) { metav1.ResetObjectMetaForStatus(r, old) },
			Validate: validatePodRequestStatus,
			Allow:    allowSigning,
		}},
		Fields: map[string]func(*request) string{
			"metadata.namespace": nil,
			"spec.signerName":    func(r *request) string { return r.Spec.SignerName },
			"spec.podName":       func(r *request) string { return r.Spec.PodName },
			"spec.nodeName":      func(r *request) string { return string(r.Spec.NodeName) },
		},
		Columns: []kind.Column[request]{
			kind.NameColumn[request](),
			{Name: "PodName", Description: doc["podName"], Value: func(r *request) any { return r.Spec.PodName }},
			{Name: "ServiceAccountName", Description: doc["serviceAccountName"],
				Value: func(r *request) any { return r.Spec.ServiceAccountName }},
			{Name: "NodeName", Description: doc["nodeName"], Value: func(r *request) any { return string(r.Spec.NodeName) }},
			{Name: "SignerName", Description: doc["signerName"], Value: func(r *request) any { return r.Spec.SignerName }},
			{Name: "State", Description: "Is the request Pending, Issued, Denied, or Failed?",
				Value: func(r *request) any { return podRequestState(r) }},
			{Name: "UnverifiedUserAnnotations", Description: doc["unverifiedUserAnnotations"], Value: func(r *request) any {
				return labels.FormatLabels(r.Spec.UnverifiedUserAnnotations)
			}},
		},
	})
}

func podRequestState(r *certificatesv1.PodCertificateRequest) string {
	state := "Pending"
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied,
			certificatesv1.PodCertificateRequestConditionTypeFailed:
			state = c.Type
		}
	}
	return state
}
