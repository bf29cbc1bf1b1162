package certificates

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

type csr = certificatesv1.CertificateSigningRequest

// anyName accepts every name.
func anyName(string, bool) []string { return nil }

// legacySigner was the default signer of an API version that is no longer served.
const legacySigner = "kubernetes.io/legacy-unknown"

// minLife is the shortest duration, in seconds, for which a certificate may be requested.
const minLife = 600

// decisionTypes returns the conditions that must be True and cannot be removed.
func decisionTypes() []certificatesv1.RequestConditionType {
	return []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied,
		certificatesv1.CertificateFailed}
}

func usagesText() []certificatesv1.KeyUsage {
	all := []certificatesv1.KeyUsage{
		certificatesv1.UsageSigning, certificatesv1.UsageDigitalSignature, certificatesv1.UsageContentCommitment,
		certificatesv1.UsageKeyEncipherment,
		certificatesv1.UsageKeyAgreement, certificatesv1.UsageDataEncipherment, certificatesv1.UsageCertSign, certificatesv1.UsageCRLSign,
		certificatesv1.UsageEncipherOnly, certificatesv1.UsageDecipherOnly, certificatesv1.UsageAny, certificatesv1.UsageServerAuth,
		certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning, certificatesv1.UsageEmailProtection, certificatesv1.UsageSMIME,
		certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel, certificatesv1.UsageIPsecUser,
		certificatesv1.UsageTimestamping,
		certificatesv1.UsageOCSPSigning, certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC,
	}
	slices.Sort(all)
	return all
}

func validateRequest(r, old *csr) field.ErrorList {
	if old == nil {
		return append(validateRequestBody(r, nil), validateNotBoth(r, nil)...)
	}
	return validateRequestChange(r, old, false, false)
}

func validateRequestStatus(r, old *csr) field.ErrorList {
	return validateRequestChange(r, old, false, true)
}

func validateApproval(r, old *csr) field.ErrorList {
	return validateRequestChange(r, old, true, false)
}

// validateRequestBody accepts invalid values that are stored already.
func validateRequestBody(r, old *csr) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if err := parseRequest(r.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(spec.Child("request"), r.Spec.Request, err.Error()))
	}
	errs = append(errs, validateUsages(r, old, spec.Child("usages"))...)
	if r.Spec.SignerName == legacySigner && (old == nil || old.Spec.SignerName != legacySigner) {
		errs = append(errs, field.Invalid(spec.Child("signerName"), r.Spec.SignerName,
			"the legacy signerName is not allowed via this API version"))
	} else {
		errs = append(errs, check.SignerName(r.Spec.SignerName, spec.Child("signerName"))...)
	}
	if s := r.Spec.ExpirationSeconds; s != nil && *s < minLife {
		errs = append(errs, field.Invalid(spec.Child("expirationSeconds"), *s,
			"may not specify a duration less than 600 seconds (10 minutes)"))
	}
	errs = append(errs, validateConditions(r, old, field.NewPath("status", "conditions"))...)
	if old == nil || !bytes.Equal(r.Status.Certificate, old.Status.Certificate) && parseCertificates(old.Status.Certificate) == nil {
		if err := parseCertificates(r.Status.Certificate); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("status", "certificate"), "<certificate data>", err.Error()))
		}
	}
	return errs
}

func validateUsages(r, old *csr, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Spec.Usages) == 0 {
		errs = append(errs, field.Required(path, ""))
	}
	known := usagesText()
	unknown := func(u certificatesv1.KeyUsage) bool { return !slices.Contains(known, u) }
	if old == nil || !slices.ContainsFunc(old.Spec.Usages, unknown) {
		for i, u := range r.Spec.Usages {
			if unknown(u) {
				errs = append(errs, field.NotSupported(path.Index(i), u, known))
			}
		}
	}
	if old == nil || len(duplicateIndexes(old.Spec.Usages)) == 0 {
		for _, i := range duplicateIndexes(r.Spec.Usages) {
			errs = append(errs, field.Duplicate(path.Index(i), r.Spec.Usages[i]))
		}
	}
	return errs
}

// duplicateIndexes returns the indexes of duplicates.
func duplicateIndexes[S ~string](list []S) []int {
	var at []int
	for i, s := range list {
		if slices.Contains(list[:i], s) {
			at = append(at, i)
		}
	}
	return at
}

func conditionTypes(r *csr) []certificatesv1.RequestConditionType {
	types := make([]certificatesv1.RequestConditionType, len(r.Status.Conditions))
	for i, c := range r.Status.Conditions {
		types[i] = c.Type
	}
	return types
}

func validateConditions(r, old *csr, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	types := conditionTypes(r)
	mayRepeat := old != nil && len(duplicateIndexes(conditionTypes(old))) > 0
	mayBeEmpty := old != nil && slices.Contains(conditionTypes(old), "")
	for i, c := range r.Status.Conditions {
		if c.Type == "" && !mayBeEmpty {
			errs = append(errs, field.Required(path.Index(i).Child("type"), ""))
		}
		known := []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}
		if slices.Contains(decisionTypes(), c.Type) {
			known = []corev1.ConditionStatus{corev1.ConditionTrue}
		}
		switch {
		case c.Status == "":
			errs = append(errs, field.Required(path.Index(i).Child("status"), ""))
		case !slices.Contains(known, c.Status):
			errs = append(errs, field.NotSupported(path.Index(i).Child("status"), c.Status, known))
		}
		if !mayRepeat && slices.Contains(types[:i], c.Type) {
			errs = append(errs, field.Duplicate(path.Index(i).Child("type"), c.Type))
		}
	}
	return errs
}

// validateNotBoth refuses a request that is both approved and denied, unless it is stored so already.
func validateNotBoth(r, old *csr) field.ErrorList {
	both := func(r *csr) bool {
		return len(conditionIndexes(r, certificatesv1.CertificateApproved)) > 0 &&
			len(conditionIndexes(r, certificatesv1.CertificateDenied)) > 0
	}
	if !both(r) || old != nil && both(old) {
		return nil
	}
	const members = `conditions[{"type": "Approved"}], conditions[{"type": "Denied"}]`
	return field.ErrorList{field.Invalid(field.NewPath("status", "conditions"), "{"+members+"}", "must specify at most one of: `conditions[{\"type\": \"Approved\"}]`, `conditions[{\"type\": \"Denied\"}]`")}
}

func validateRequestChange(r, old *csr, approving, signing bool) field.ErrorList {
	errs := validateRequestBody(r, old)
	path := field.NewPath("status", "conditions")
	for _, t := range decisionTypes() {
		if len(conditionIndexes(r, t)) < len(conditionIndexes(old, t)) {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("updates may not remove a condition of type %q", t)))
		}
	}
	if !approving {
		for _, t := range decisionTypes()[:2] {
			if len(conditionIndexes(r, t)) > len(conditionIndexes(old, t)) {
				errs = append(errs, field.Forbidden(path, fmt.Sprintf("updates may not add a condition of type %q", t)))
			}
		}
	}
	if !bytes.Equal(r.Status.Certificate, old.Status.Certificate) {
		certificate := field.NewPath("status", "certificate")
		if !signing {
			errs = append(errs, field.Forbidden(certificate, "updates may not set certificate content"))
		} else if len(old.Status.Certificate) > 0 {
			errs = append(errs, field.Forbidden(certificate, "updates may not modify existing certificate content"))
		}
	}
	return append(errs, validateNotBoth(r, old)...)
}

// parseRequest checks that data is a signed PKCS#10 request in PEM.
func parseRequest(data []byte) error {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	return request.CheckSignature()
}

// parseCertificates checks that data is empty or consists of certificates in PEM.
func parseCertificates(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	found := false
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) != 0 {
			return errors.New("no PEM block headers are permitted")
		}
		found = true
		certs, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certs) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
	}
	if !found {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}
