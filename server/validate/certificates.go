package validate

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
)

// approval lets only those approve a request who may do so for its signer. The signer is that of the stored request: the new
// one is the word of who asks.
func approval(ctx context.Context, a *kind.Admission) error {
	old, ok := a.Old.(*certificatesv1.CertificateSigningRequest)
	if !ok || a.Verb != "update" || a.Sub != "approval" {
		return nil
	}
	if !may(ctx, a, "approve", old.Spec.SignerName) {
		return a.Forbidf("user not permitted to approve requests with signerName %q", old.Spec.SignerName)
	}
	return nil
}

// signing lets only those answer a request who may sign for its signer.
func signing(ctx context.Context, a *kind.Admission) error {
	request, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok || a.Verb != "update" || a.Sub != "status" {
		return nil
	}
	old, ok := a.Old.(*certificatesv1.CertificateSigningRequest)
	if !ok || !answers(request, old) {
		return nil
	}
	if !may(ctx, a, "sign", old.Spec.SignerName) {
		return a.Forbidf("user not permitted to sign requests with signerName %q", old.Spec.SignerName)
	}
	return nil
}

// answers says that a change of status says something about the certificate.
func answers(request, old *certificatesv1.CertificateSigningRequest) bool {
	return !bytes.Equal(request.Status.Certificate, old.Status.Certificate) ||
		!equality.Semantic.DeepEqual(request.Status.Conditions, old.Status.Conditions)
}

// subject refuses requests for a certificate that would pass every authorization.
func subject(_ context.Context, a *kind.Admission) error {
	request, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok || !a.Creates() || request.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	csr, err := parseRequest(request.Spec.Request)
	if err != nil {
		return a.Forbidf("failed to parse CSR: %w", err)
	}
	if slices.Contains(csr.Subject.Organization, user.SystemPrivilegedGroup) {
		return a.Forbidf("use of %s signer with system:masters group is not allowed", certificatesv1.KubeAPIServerClientSignerName)
	}
	return nil
}

func parseRequest(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// attest lets only those publish a signer's trust anchors who may speak for it.
func attest(ctx context.Context, a *kind.Admission) error {
	bundle, ok := a.Object.(*certificatesv1.ClusterTrustBundle)
	if !ok || bundle.Spec.SignerName == "" {
		return nil
	}
	if old, ok := a.Old.(*certificatesv1.ClusterTrustBundle); ok && sameButLife(bundle, old) {
		return nil
	}
	if !may(ctx, a, "attest", bundle.Spec.SignerName) {
		return a.Forbidf("user not permitted to attest for signerName %q", bundle.Spec.SignerName)
	}
	return nil
}

// sameButLife says that an update changes nothing but what a garbage collector or a storage migration would.
func sameButLife(bundle, old *certificatesv1.ClusterTrustBundle) bool {
	c := bundle.DeepCopy()
	c.OwnerReferences, c.Finalizers, c.SelfLink, c.ManagedFields = old.OwnerReferences, old.Finalizers, old.SelfLink, old.ManagedFields
	return equality.Semantic.DeepEqual(c, old)
}

// may asks hop 3 whether the user may do this for a signer, by its name or by that of its domain.
func may(ctx context.Context, a *kind.Admission, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, fmt.Sprintf("%s/*", domain)} {
		if a.Asks(ctx, authorizationv1.ResourceAttributes{
			Verb: verb, Group: certificatesv1.GroupName, Version: "*", Resource: "signers", Name: name,
		}).Allowed {
			return true
		}
	}
	return false
}
