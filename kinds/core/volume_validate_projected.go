package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// projection checks the sources of a projected volume, which share one tree of paths.
type projection struct {
	at    *field.Path
	seen  map[string]bool
	allow PodAllowances
	errs  field.ErrorList
}

func (p *projection) add(errs field.ErrorList) { p.errs = append(p.errs, errs...) }

// take reserves a path; shown is the value that the error names.
func (p *projection) take(path, shown string) {
	if p.seen[path] {
		p.errs = append(p.errs, field.Invalid(p.at, shown, "conflicting duplicate paths"))
	}
	p.seen[path] = true
}

func validateProjected(v *corev1.ProjectedVolumeSource, at *field.Path, allow PodAllowances) field.ErrorList {
	p := &projection{at: at, seen: map[string]bool{}, allow: allow}
	p.add(fileMode(v.DefaultMode, at.Child("defaultMode")))
	p.add(userID(v.DefaultUser, at.Child("defaultUser")))
	for i := range v.Sources {
		s, at := &v.Sources[i], at.Child("sources").Index(i)
		sources := 0
		if s.Secret != nil {
			sources++
			p.items(s.Secret.Name, s.Secret.Items, at.Child("secret"))
		}
		if s.ConfigMap != nil {
			sources++
			p.items(s.ConfigMap.Name, s.ConfigMap.Items, at.Child("configMap"))
		}
		if s.DownwardAPI != nil {
			sources++
			p.downward(s.DownwardAPI.Items, at.Child("downwardAPI"))
		}
		if s.ServiceAccountToken != nil {
			sources++
			p.token(s.ServiceAccountToken, at.Child("serviceAccountToken"))
		}
		if s.ClusterTrustBundle != nil {
			sources++
			p.trustBundle(s.ClusterTrustBundle, at.Child("clusterTrustBundle"))
		}
		if s.PodCertificate != nil {
			sources++
			p.certificate(s.PodCertificate, at.Child("podCertificate"))
		}
		if sources > 1 {
			p.errs = append(p.errs, field.Forbidden(at, "may not specify more than 1 volume type per source"))
		}
	}
	return p.errs
}

func (p *projection) items(name string, items []corev1.KeyToPath, at *field.Path) {
	p.add(required(name, at.Child("name")))
	for i, item := range items {
		p.add(validateItem(item, at.Child("items").Index(i)))
		if item.Path != "" {
			p.take(item.Path, name)
		}
	}
}

func (p *projection) downward(files []corev1.DownwardAPIVolumeFile, at *field.Path) {
	for i := range files {
		p.add(validateDownwardFile(&files[i], at))
		if path := files[i].Path; path != "" {
			p.take(path, path)
		}
	}
}

func (p *projection) token(t *corev1.ServiceAccountTokenProjection, at *field.Path) {
	seconds := at.Child("expirationSeconds")
	switch s := t.ExpirationSeconds; {
	case s == nil:
		p.errs = append(p.errs, field.Required(seconds, ""))
	case *s < 600:
		p.errs = append(p.errs, field.Invalid(seconds, *s, "may not specify a duration less than 10 minutes"))
	case *s > 1<<32:
		p.errs = append(p.errs, field.Invalid(seconds, *s, "may not specify a duration larger than 2^32 seconds"))
	}
	switch {
	case t.Path == "":
		p.errs = append(p.errs, field.Required(p.at.Child("path"), ""))
	case !p.allow.nonLocalTokenPath:
		p.add(localPath(t.Path, p.at.Child("path")))
	}
	p.add(userID(t.User, at.Child("user")))
}

func (p *projection) trustBundle(b *corev1.ClusterTrustBundleProjection, at *field.Path) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		p.errs = append(p.errs, field.Invalid(at, shown{b}, "only one of name and signerName may be used"))
	case b.Name != nil:
		if *b.Name == "" {
			p.errs = append(p.errs, field.Required(at.Child("name"), "must be a valid object name"))
		}
		for _, msg := range trustBundleName(*b.Name) {
			p.errs = append(p.errs, field.Invalid(at.Child("name"), *b.Name, fmt.Sprintf("not a valid clustertrustbundlename: %v", msg)))
		}
		if b.LabelSelector != nil {
			p.errs = append(p.errs, field.Invalid(at.Child("labelSelector"), b.LabelSelector, "labelSelector must be unset if name is specified"))
		}
	case b.SignerName != nil:
		if *b.SignerName == "" {
			p.errs = append(p.errs, field.Required(at.Child("signerName"), "must be a valid signer name"))
		}
		p.add(ValidateSignerName(*b.SignerName, at.Child("signerName")))
		p.add(metavalidation.ValidateLabelSelector(b.LabelSelector, metavalidation.LabelSelectorValidationOptions{}, at.Child("labelSelector")))
	default:
		p.errs = append(p.errs, field.Required(at, "either name or signerName must be specified"))
	}
	p.add(required(b.Path, at.Child("path")))
	p.add(userID(b.User, at.Child("user")))
	p.add(localPath(b.Path, at.Child("path")))
	p.take(b.Path, b.Path)
}

// The bounds of how long a pod certificate may be asked to live, in seconds.
const (
	minCertificateLife        = 3600
	maxCertificateLife        = 91 * 24 * 3600
	maxClusterCertificateLife = 24 * 3600
)

func (p *projection) certificate(c *corev1.PodCertificateProjection, at *field.Path) {
	p.add(ValidateSignerName(c.SignerName, at.Child("signerName")))
	if c.UserAnnotations != nil {
		for _, key := range slices.Sorted(maps.Keys(c.UserAnnotations)) {
			p.add(validation.IsDomainPrefixedKey(at.Child("userAnnotations"), strings.ToLower(key)))
		}
		if apivalidation.ValidateAnnotationsSize(c.UserAnnotations) != nil {
			p.errs = append(p.errs, field.TooLong(at.Child("userAnnotations"), "", apivalidation.TotalAnnotationSizeLimitB))
		}
	}
	p.add(userID(c.User, at.Child("user")))
	p.add(oneOf(c.KeyType, at.Child("keyType"), "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"))
	if s := c.MaxExpirationSeconds; s != nil {
		if *s < minCertificateLife {
			p.errs = append(p.errs, field.Invalid(at.Child("maxExpirationSeconds"), *s, "if provided, maxExpirationSeconds must be >= 3600"))
		}
		limit := int32(maxCertificateLife)
		if isKubernetesSigner(c.SignerName) {
			limit = maxClusterCertificateLife
		}
		if *s > limit {
			p.errs = append(p.errs, field.Invalid(at.Child("maxExpirationSeconds"), *s, fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", limit)))
		}
	}
	paths := 0
	for _, f := range []struct{ name, path string }{
		{"credentialBundlePath", c.CredentialBundlePath}, {"keyPath", c.KeyPath}, {"certificateChainPath", c.CertificateChainPath},
	} {
		if f.path != "" {
			paths++
			p.add(localPath(f.path, at.Child(f.name)))
			p.take(f.path, f.path)
		}
	}
	if paths == 0 {
		p.errs = append(p.errs, field.Required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
}

// trustBundleName checks the name of a trust bundle, which begins with its signer's, if it has one.
func trustBundleName(name string) []string {
	i := strings.LastIndex(name, ":")
	return apivalidation.NameIsDNSSubdomain(name[i+1:], false)
}

func isKubernetesSigner(name string) bool {
	host, _, _ := strings.Cut(name, "/")
	return host == "kubernetes.io" || strings.HasSuffix(host, ".kubernetes.io")
}

// ValidateSignerName checks the name of a certificate signer: a domain, a slash and a path.
func ValidateSignerName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	host, path, found := strings.Cut(name, "/")
	if !found || strings.Contains(path, "/") {
		return field.ErrorList{field.Invalid(at, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	var errs field.ErrorList
	if len(host) > validation.DNS1123SubdomainMaxLength {
		errs = append(errs, field.TooLong(at, "", validation.DNS1123SubdomainMaxLength))
	}
	errs = append(errs, firstBadLabel(host, at, validation.IsDNS1123Label)...)
	if !strings.Contains(host, ".") {
		errs = append(errs, field.Invalid(at, host, "should be a domain with at least two segments separated by dots"))
	}
	errs = append(errs, firstBadLabel(path, at, validation.IsDNS1123Subdomain)...)
	const most = validation.DNS1123SubdomainMaxLength + 1 + validation.DNS1123SubdomainMaxLength + validation.DNS1123LabelMaxLength + 1
	if len(name) > most {
		errs = append(errs, field.TooLong(at, "", most))
	}
	return errs
}

// firstBadLabel checks the parts between dots and stops at the first that is wrong.
func firstBadLabel(value string, at *field.Path, valid func(string) []string) field.ErrorList {
	for label := range strings.SplitSeq(value, ".") {
		var errs field.ErrorList
		for _, msg := range valid(label) {
			errs = append(errs, field.Invalid(at, value, fmt.Sprintf("validating label %q: %s", label, msg)))
		}
		if len(errs) > 0 {
			return errs
		}
	}
	return nil
}
