package certificates

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

// outcomeTypes returns the types of conditions that end a request.
func outcomeTypes() []string {
	return []string{
		certificatesv1.PodCertificateRequestConditionTypeIssued,
		certificatesv1.PodCertificateRequestConditionTypeDenied,
		certificatesv1.PodCertificateRequestConditionTypeFailed,
	}
}

// outcomeOf returns the type of the condition that ended a request; empty if it is pending.
func outcomeOf(r *podRequest) string {
	for _, c := range r.Status.Conditions {
		if c.Status == metav1.ConditionTrue && slices.Contains(outcomeTypes(), c.Type) {
			return c.Type
		}
	}
	return ""
}

func validatePodRequestStatus(r, old *podRequest) field.ErrorList {
	status := field.NewPath("status")
	if errs := validateOutcomes(r, status); len(errs) > 0 {
		return errs
	}
	requireStatus := func(want certificatesv1.PodCertificateRequestStatus, detail string) field.ErrorList {
		if equality.Semantic.DeepEqual(r.Status, want) {
			return nil
		}
		return field.ErrorList{field.Invalid(status, field.OmitValueType{}, detail)}
	}
	switch is := outcomeOf(r); {
	case outcomeOf(old) != "":
		return requireStatus(old.Status, "immutable after PodCertificateRequest is issued, denied, or failed")
	case is == "":
		return requireStatus(old.Status, `status is immutable unless transitioning to "Issued", "Denied", or "Failed"`)
	case is != certificatesv1.PodCertificateRequestConditionTypeIssued:
		return requireStatus(certificatesv1.PodCertificateRequestStatus{Conditions: r.Status.Conditions},
			"non-condition status fields must be empty when denying or failing the PodCertificateRequest")
	}
	return validateIssued(r, old, status)
}

func validateOutcomes(r *podRequest, status *field.Path) field.ErrorList {
	var errs field.ErrorList
	known := 0
	for i, c := range r.Status.Conditions {
		// Upstream has brackets behind a dot in these paths.
		at := status.Child("conditions", fmt.Sprintf("[%d]", i))
		if !slices.Contains(outcomeTypes(), c.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), c.Type, outcomeTypes()))
			continue
		}
		if known++; known > 1 {
			errs = append(errs, field.Invalid(at.Child("type"), c.Type, `There may be at most one condition with type "Issued", "Denied", or "Failed"`))
		}
		if c.Status != metav1.ConditionTrue {
			errs = append(errs, field.NotSupported(at.Child("status"), c.Status, []metav1.ConditionStatus{metav1.ConditionTrue}))
		}
	}
	return append(errs, metav1validation.ValidateConditions(r.Status.Conditions, status.Child("conditions"))...)
}

// validateIssued checks that the certificate is for the key of the request, and that the times in the status are
// those of the certificate.
func validateIssued(r, old *podRequest, status *field.Path) field.ErrorList {
	path, text := status.Child("certificateChain"), r.Status.CertificateChain
	bad := func(detail string) field.ErrorList { return field.ErrorList{field.Invalid(path, text, detail)} }
	if len(text) > maxChain {
		return field.ErrorList{field.TooLong(path, text, maxChain)}
	}
	block, rest := pem.Decode([]byte(text))
	if block == nil {
		return bad("issued certificate chain must contain at least one certificate")
	}
	if block.Type != "CERTIFICATE" {
		return bad("issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return bad("leaf certificate does not parse as valid X.509")
	}
	errs := validateLeafNames(leaf, path)
	request, err := x509.ParseCertificateRequest(old.Spec.StubPKCS10Request)
	if err != nil {
		return append(errs, field.Invalid(field.NewPath("spec", "stubPKCS10Request"), field.OmitValueType{}, "must be a valid PKCS#10 CSR"))
	}
	if k, ok := request.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); ok && !k.Equal(leaf.PublicKey) {
		return append(errs, bad("leaf certificate was not issued to the requested public key")...)
	}
	if errs = append(errs, validateTimesSet(r, status)...); len(errs) > 0 {
		return errs
	}
	if errs := validateTimes(r, leaf, status); errs != nil {
		return errs
	}
	for block, rest = pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return bad("issued certificate chain must consist entirely of CERTFICATE PEM blocks")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return bad("intermediate certificate does not parse as valid X.509")
		}
	}
	return nil
}

func validateLeafNames(leaf *x509.Certificate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range leaf.DNSNames {
		if name == "" {
			errs = append(errs, field.Invalid(path, name, "leaf certificate should not contain empty DNSName"))
		}
		if strings.Contains(name, "..") {
			errs = append(errs, field.Invalid(path, name, "leaf certificate's DNSName should not contain '..'"))
		}
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			errs = append(errs, field.Invalid(path, name, "leaf certificate's DNSName should not start or end with '.'"))
		}
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			errs = append(errs, field.Invalid(path, address, "leaf certificate should not contain invalid EmailAddress"))
		}
	}
	return errs
}

func validateTimesSet(r *podRequest, status *field.Path) field.ErrorList {
	const consistent = "must be present and consistent with the issued certificate"
	var errs field.ErrorList
	if r.Status.NotBefore == nil {
		errs = append(errs, field.Required(status.Child("notBefore"), consistent))
	}
	if r.Status.NotAfter == nil {
		errs = append(errs, field.Required(status.Child("notAfter"), consistent))
	}
	if r.Status.BeginRefreshAt == nil {
		errs = append(errs, field.Required(status.Child("beginRefreshAt"),
			"must be present and in the range [notbefore+10min, notafter-10min]"))
	}
	return errs
}

// validateTimes returns the first violation.
func validateTimes(r *podRequest, leaf *x509.Certificate, status *field.Path) field.ErrorList {
	const margin, skew = 10 * time.Minute, 5 * time.Minute
	from, to, refresh := r.Status.NotBefore.Time, r.Status.NotAfter.Time, r.Status.BeginRefreshAt.Time
	life, most := leaf.NotAfter.Sub(leaf.NotBefore), *r.Spec.MaxExpirationSeconds
	for _, rule := range []struct {
		broken bool
		field  string
		value  any
		detail string
	}{
		{!from.Equal(leaf.NotBefore), "notBefore", from, "must be set to the NotBefore time encoded in the leaf certificate"},
		{time.Since(from).Abs() >= skew, "notBefore", from, "must be set to within 5 minutes of kube-apiserver's current time"},
		{!to.Equal(leaf.NotAfter), "notAfter", to, "must be set to the NotAfter time encoded in the leaf certificate"},
		{life < time.Hour, "certificateChain", life, "leaf certificate lifetime must be >= 1 hour"},
		{life > time.Duration(most)*time.Second, "certificateChain", life,
			fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%v)", most)},
		{refresh.Before(from.Add(margin)), "beginRefreshAt", refresh, "must be at least 10 minutes after status.notBefore"},
		{refresh.After(to.Add(-margin)), "beginRefreshAt", refresh, "must be at least 10 minutes before status.notAfter"},
	} {
		if rule.broken {
			return field.ErrorList{field.Invalid(status.Child(rule.field), rule.value, rule.detail)}
		}
	}
	return nil
}

// allowSigning refuses changes of a status by users without permission to sign for the signer.
func allowSigning(ctx context.Context, d kind.Server, r, old *podRequest) field.ErrorList {
	if equality.Semantic.DeepEqual(old.Status, r.Status) {
		return nil
	}
	signer := old.Spec.SignerName
	domain, _, _ := strings.Cut(signer, "/")
	u := d.User()
	for _, name := range []string{signer, domain + "/*"} {
		sign := authorizationv1.ResourceAttributes{Verb: "sign", Group: certificatesv1.GroupName, Version: "*", Resource: "signers",
			Name: name}
		if d.ReviewAccess(ctx, kind.AccessReview(u, &sign)).Allowed {
			return nil
		}
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec", "signerName"),
		fmt.Sprintf("User %q is not permitted to \"sign\" for signer %q", u.GetName(), signer))}
}
