package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

const maxBundle = 1 << 20

func validateBundle(b, old *certificatesv1.ClusterTrustBundle) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if b.GenerateName != "" && old == nil {
		errs = check.Messages(b.GenerateName, field.NewPath("metadata", "generateName"),
			bundleName(b.GenerateName, b.Spec.SignerName, true))
	}
	if b.Name != "" {
		errs = append(errs, check.Messages(b.Name, field.NewPath("metadata", "name"), bundleName(b.Name, b.Spec.SignerName, false))...)
	}
	if b.Spec.SignerName != "" {
		errs = append(errs, check.SignerName(b.Spec.SignerName, spec.Child("signerName"))...)
	}
	// Stored bundles are not parsed again: a newer parser may refuse what an older one accepted.
	if old == nil || b.Spec.TrustBundle != old.Spec.TrustBundle {
		errs = append(errs, validateAnchors(b.Spec.TrustBundle, spec.Child("trustBundle"))...)
	}
	if old != nil {
		errs = append(errs, check.Immutable(b.Spec.SignerName, old.Spec.SignerName, spec.Child("signerName"))...)
	}
	return errs
}

// bundleName requires that the name of a signer's bundle begins with the name of the signer.
func bundleName(name, signer string, begins bool) []string {
	if signer == "" {
		if strings.Contains(name, ":") {
			return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
		}
		return validation.NameIsDNSSubdomain(name, begins)
	}
	prefix := strings.ReplaceAll(signer, "/", ":") + ":"
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, prefix)}
	}
	return validation.NameIsDNSSubdomain(rest, begins)
}

func validateAnchors(bundle string, path *field.Path) field.ErrorList {
	if len(bundle) > maxBundle {
		return field.ErrorList{field.TooLong(path, "", maxBundle)}
	}
	var errs field.ErrorList
	bad := func(format string, args ...any) {
		errs = append(errs, field.Invalid(path, "<value omitted>", fmt.Sprintf(format, args...)))
	}
	places := map[string][]int{}
	i := 0
	for block, rest := pem.Decode([]byte(bundle)); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		switch {
		case block.Type != "CERTIFICATE":
			bad("entry %d has bad block type: %v", i, block.Type)
		case len(block.Headers) != 0:
			bad("entry %d has PEM block headers", i)
		case err != nil:
			bad("entry %d does not parse as X.509", i)
		case !cert.IsCA:
			bad("entry %d does not have the CA bit set", i)
		case !cert.BasicConstraintsValid:
			bad("entry %d has invalid basic constraints", i)
		default:
			places[string(block.Bytes)] = append(places[string(block.Bytes)], i)
		}
		i++
	}
	if len(errs) > 0 {
		return errs // further errors would repeat it
	}
	if len(places) == 0 {
		bad("at least one trust anchor must be provided")
	}
	for _, anchor := range slices.Sorted(maps.Keys(places)) {
		if at := places[anchor]; len(at) > 1 {
			bad("duplicate trust anchor (indices %v)", at)
		}
	}
	return errs
}
