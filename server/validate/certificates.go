package validate

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
	"proa.dev/server/admissionlib"
)

// approval requires the permission to approve for the signer of a request. The signer is that of the stored request,
// because the new object is whatever the client sends.
func approval(ctx context.Context, a *kind.Admission) error {
	old, ok := a.Old.(*certificatesv1.CertificateSigningRequest)
	if !ok || a.Verb != "update" || a.Sub != "approval" {
		return nil
	}
	if !mayActForSigner(ctx, a, "approve", old.Spec.SignerName) {
		return a.Forbidf("user not permitted to approve requests with signerName %q", old.Spec.SignerName)
	}
	return nil
}

// signing requires the permission to sign for the signer of a request.
func signing(ctx context.Context, a *kind.Admission) error {
	request, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok || a.Verb != "update" || a.Sub != "status" {
		return nil
	}
	old, ok := a.Old.(*certificatesv1.CertificateSigningRequest)
	if !ok || !changesOutcome(request, old) {
		return nil
	}
	if !mayActForSigner(ctx, a, "sign", old.Spec.SignerName) {
		return a.Forbidf("user not permitted to sign requests with signerName %q", old.Spec.SignerName)
	}
	return nil
}

// changesOutcome reports whether an update of the status changes the certificate or the conditions.
func changesOutcome(request, old *certificatesv1.CertificateSigningRequest) bool {
	return !bytes.Equal(request.Status.Certificate, old.Status.Certificate) ||
		!equality.Semantic.DeepEqual(request.Status.Conditions, old.Status.Conditions)
}

// subject rejects requests for a certificate of the group system:masters, which passes every authorization.
func subject(_ context.Context, a *kind.Admission) error {
	request, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok || !a.IsCreate() || request.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return nil
	}
	csr, err := admissionlib.ParseCertificateRequest(request.Spec.Request)
	if err != nil {
		return a.Forbidf("failed to parse CSR: %w", err)
	}
	if slices.Contains(csr.Subject.Organization, user.SystemPrivilegedGroup) {
		return a.Forbidf("use of %s signer with system:masters group is not allowed", certificatesv1.KubeAPIServerClientSignerName)
	}
	return nil
}

// attest requires the permission to attest for the signer of a trust bundle.
func attest(ctx context.Context, a *kind.Admission) error {
	bundle, ok := a.Object.(*certificatesv1.ClusterTrustBundle)
	if !ok || bundle.Spec.SignerName == "" {
		return nil
	}
	if old, ok := a.Old.(*certificatesv1.ClusterTrustBundle); ok && changesOnlyMetadata(bundle, old) {
		return nil
	}
	if !mayActForSigner(ctx, a, "attest", bundle.Spec.SignerName) {
		return a.Forbidf("user not permitted to attest for signerName %q", bundle.Spec.SignerName)
	}
	return nil
}

// changesOnlyMetadata reports whether an update changes nothing but what a garbage collector or a storage migration
// changes.
func changesOnlyMetadata(bundle, old *certificatesv1.ClusterTrustBundle) bool {
	c := bundle.DeepCopy()
	c.OwnerReferences, c.Finalizers, c.SelfLink, c.ManagedFields = old.OwnerReferences, old.Finalizers, old.SelfLink, old.ManagedFields
	return equality.Semantic.DeepEqual(c, old)
}

// mayActForSigner asks hop 3 whether the user has the verb for a signer, by its name or by that of its domain.
func mayActForSigner(ctx context.Context, a *kind.Admission, verb, signer string) bool {
	domain, _, _ := strings.Cut(signer, "/")
	for _, name := range []string{signer, fmt.Sprintf("%s/*", domain)} {
		if a.Authorize(ctx, authorizationv1.ResourceAttributes{
			Verb: verb, Group: certificatesv1.GroupName, Version: "*", Resource: "signers", Name: name,
		}).Allowed {
			return true
		}
	}
	return false
}
