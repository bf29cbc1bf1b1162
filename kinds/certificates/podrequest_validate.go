package certificates

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

type podRequest = certificatesv1.PodCertificateRequest

// The bounds of a request in bytes, and of its lifetime in seconds.
const (
	maxUID         = 128
	maxKey         = 10 << 10
	maxChain       = 100 << 10
	minExpiration  = 60 * 60
	maxExpiration  = 91 * 24 * 60 * 60
	maxExpirationK = 24 * 60 * 60 // for the signers of Kubernetes
)

func validatePodRequest(r, old *podRequest) field.ErrorList {
	spec, s := field.NewPath("spec"), &r.Spec
	if old != nil {
		if equality.Semantic.DeepEqual(r.Spec, old.Spec) {
			return nil
		}
		return field.ErrorList{field.Invalid(spec, shownSpec(s), apivalidation.FieldImmutableErrorMsg)}
	}
	errs := check.SignerName(s.SignerName, spec.Child("signerName"))
	errs = append(errs, validateAnnotations(s.UnverifiedUserAnnotations, spec.Child("unverifiedUserAnnotations"))...)
	for _, f := range []struct {
		name, value, uid string
		valid            apivalidation.ValidateNameFunc
	}{
		{"pod", s.PodName, string(s.PodUID), apivalidation.NameIsDNSSubdomain},
		{"serviceAccount", s.ServiceAccountName, string(s.ServiceAccountUID), apivalidation.ValidateServiceAccountName},
		{"node", string(s.NodeName), string(s.NodeUID), apivalidation.NameIsDNSSubdomain},
	} {
		errs = append(errs, check.Messages(f.value, spec.Child(f.name+"Name"), f.valid(f.value, false))...)
		if f.uid == "" {
			errs = append(errs, field.Invalid(spec.Child(f.name+"UID"), f.uid, "must not be empty"))
		}
		if len(f.uid) > maxUID {
			errs = append(errs, field.TooLong(spec.Child(f.name+"UID"), f.uid, maxUID))
		}
	}
	longest := int32(maxExpiration)
	if host, _, _ := strings.Cut(s.SignerName, "/"); host == "kubernetes.io" || strings.HasSuffix(host, ".kubernetes.io") {
		longest = maxExpirationK
	}
	if n := s.MaxExpirationSeconds; n == nil {
		return append(errs, field.Required(spec.Child("maxExpirationSeconds"), "must be set"))
	} else if *n < minExpiration || *n > longest {
		errs = append(errs, field.Invalid(spec.Child("maxExpirationSeconds"), *n,
			fmt.Sprintf("must be in the range [%d, %d]", minExpiration, longest)))
	}
	if len(s.StubPKCS10Request) == 0 {
		// The message is that of an older version, which had an alternative.
		return append(errs, field.Invalid(spec, field.OmitValueType{}, "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"))
	}
	return append(errs, validateStub(s.StubPKCS10Request, spec.Child("stubPKCS10Request"))...)
}

// shownSpec returns the spec as errors quote it, with the fields of an older version.
func shownSpec(s *certificatesv1.PodCertificateRequestSpec) any {
	return struct {
		SignerName, PodName              string
		PodUID                           types.UID
		ServiceAccountName               string
		ServiceAccountUID                types.UID
		NodeName                         types.NodeName
		NodeUID                          types.UID
		MaxExpirationSeconds             *int32
		PKIXPublicKey, ProofOfPossession []byte
		StubPKCS10Request                []byte
		UnverifiedUserAnnotations        map[string]string
	}{
		s.SignerName, s.PodName, s.PodUID, s.ServiceAccountName, s.ServiceAccountUID, s.NodeName, s.NodeUID,
		s.MaxExpirationSeconds, nil, nil, s.StubPKCS10Request, s.UnverifiedUserAnnotations,
	}
}

func validateAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		errs = append(errs, validation.IsDomainPrefixedKey(path, strings.ToLower(key))...)
	}
	if apivalidation.ValidateAnnotationsSize(annotations) != nil {
		errs = append(errs, field.TooLong(path, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return errs
}

// keyWeakness returns why a public key is not accepted, and a value to quote, if there is one.
func keyWeakness(key any) (value, why string) {
	switch k := key.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if k.Curve != elliptic.P256() && k.Curve != elliptic.P384() && k.Curve != elliptic.P521() {
			return "curve " + k.Curve.Params().Name, "elliptic public keys must use curve P256, P384, or P521"
		}
	case *rsa.PublicKey:
		if bits := k.Size() * 8; bits != 3072 && bits != 4096 {
			return fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096"
		}
	default:
		return "", "unknown public key type; supported types are Ed25519, ECDSA, and RSA"
	}
	return "", ""
}

// validateStub checks only the key and the signature of a certificate request.
func validateStub(data []byte, path *field.Path) field.ErrorList {
	if len(data) > maxKey {
		return field.ErrorList{field.TooLong(path, data, maxKey)}
	}
	request, err := x509.ParseCertificateRequest(data)
	if err != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "must be a valid PKCS#10 CSR")}
	}
	switch value, why := keyWeakness(request.PublicKey); {
	case value != "":
		return field.ErrorList{field.Invalid(path, value, why)}
	case why != "":
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, why)}
	}
	if request.CheckSignature() != nil {
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "invalid signature")}
	}
	return nil
}
