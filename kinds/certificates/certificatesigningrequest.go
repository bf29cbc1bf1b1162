package certificates

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

// CertificateSigningRequests ask a signer for a certificate.
func CertificateSigningRequests() *kind.Def {
	type csr = certificatesv1.CertificateSigningRequest
	doc := certificatesv1beta1.CertificateSigningRequestSpec{}.SwaggerDoc()
	return kind.Define(kind.Resource[csr]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: certificatesv1.GroupName, Version: "v1", Kind: "CertificateSigningRequest"},
			Plural:           "certificatesigningrequests", Scope: kind.Cluster,
			Short: []string{"csr"},
			Reset: []string{"spec", "status"},
		},
		Spec:       func(r *csr) any { return &r.Spec },
		Status:     func(r *csr) any { return &r.Status },
		Name:       check.PathSegment,
		Prepare:    prepareRequest,
		PrepareFor: signRequest,
		Validate:   validateRequest,
		Subs: []kind.Sub[csr]{
			{Name: "approval", Reset: []string{"spec", "status.certificate"}, Prepare: prepareApproval, Validate: validateApproval},
			{Name: "status", Reset: []string{"spec", "status.conditions"}, Prepare: prepareRequestStatus, Validate: validateRequestStatus},
		},
		Fields: map[string]func(*csr) string{"spec.signerName": func(r *csr) string { return r.Spec.SignerName }},
		Columns: []kind.Column[csr]{
			kind.NameColumn[csr](),
			kind.AgeColumn[csr](),
			{Name: "SignerName", Description: doc["signerName"], Value: func(r *csr) any { return orNone(r.Spec.SignerName) }},
			{Name: "Requestor", Description: doc["request"], Value: func(r *csr) any { return r.Spec.Username }},
			{Name: "RequestedDuration", Description: doc["expirationSeconds"], Value: func(r *csr) any {
				if r.Spec.ExpirationSeconds == nil {
					return "<none>"
				}
				return duration.HumanDuration(time.Duration(*r.Spec.ExpirationSeconds) * time.Second)
			}},
			{Name: "Condition", Description: certificatesv1beta1.CertificateSigningRequestStatus{}.SwaggerDoc()["conditions"],
				Value: func(r *csr) any {
					return requestState(r)
				}},
		},
	})
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}

func requestState(r *certificatesv1.CertificateSigningRequest) string {
	has := map[certificatesv1.RequestConditionType]bool{}
	for _, c := range r.Status.Conditions {
		has[c.Type] = true
	}
	state := "Pending"
	switch {
	case has[certificatesv1.CertificateDenied]:
		state = "Denied"
	case has[certificatesv1.CertificateApproved]:
		state = "Approved"
	}
	if has[certificatesv1.CertificateFailed] {
		state += ",Failed"
	}
	if len(r.Status.Certificate) > 0 {
		state += ",Issued"
	}
	return state
}
