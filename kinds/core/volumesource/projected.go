package volumesource

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

	"proa.dev/kinds/lib/check"
)

// projection checks the sources of a projected volume, whose files must have different paths.
type projection struct {
	at    *field.Path
	seen  map[string]bool
	allow Allowances
	errs  field.ErrorList
}

func (p *projection) add(errs field.ErrorList) { p.errs = append(p.errs, errs...) }

// addPath records the path of a file; shown is the value that an error quotes.
func (p *projection) addPath(path, shown string) {
	if p.seen[path] {
		p.errs = append(p.errs, field.Invalid(p.at, shown, "conflicting duplicate paths"))
	}
	p.seen[path] = true
}

func validateProjected(v *corev1.ProjectedVolumeSource, at *field.Path, allow Allowances) field.ErrorList {
	p := &projection{at: at, seen: map[string]bool{}, allow: allow}
	p.add(check.FileMode(v.DefaultMode, at.Child("defaultMode")))
	p.add(check.UserID(v.DefaultUser, at.Child("defaultUser")))
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
	p.add(check.Required(name, at.Child("name")))
	for i, item := range items {
		p.add(validateItem(item, at.Child("items").Index(i)))
		if item.Path != "" {
			p.addPath(item.Path, name)
		}
	}
}

func (p *projection) downward(files []corev1.DownwardAPIVolumeFile, at *field.Path) {
	for i := range files {
		p.add(validateDownwardFile(&files[i], at))
		if path := files[i].Path; path != "" {
			p.addPath(path, path)
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
	case !p.allow.NonLocalTokenPath:
		p.add(check.UnreservedPath(t.Path, p.at.Child("path")))
	}
	p.add(check.UserID(t.User, at.Child("user")))
}

func (p *projection) trustBundle(b *corev1.ClusterTrustBundleProjection, at *field.Path) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		p.errs = append(p.errs, field.Invalid(at, check.GoFields(b), "only one of name and signerName may be used"))
	case b.Name != nil:
		if *b.Name == "" {
			p.errs = append(p.errs, field.Required(at.Child("name"), "must be a valid object name"))
		}
		for _, msg := range trustBundleNameErrors(*b.Name) {
			p.errs = append(p.errs, field.Invalid(at.Child("name"), *b.Name, fmt.Sprintf("not a valid clustertrustbundlename: %v", msg)))
		}
		if b.LabelSelector != nil {
			p.errs = append(p.errs, field.Invalid(at.Child("labelSelector"), b.LabelSelector,
				"labelSelector must be unset if name is specified"))
		}
	case b.SignerName != nil:
		if *b.SignerName == "" {
			p.errs = append(p.errs, field.Required(at.Child("signerName"), "must be a valid signer name"))
		}
		p.add(check.SignerName(*b.SignerName, at.Child("signerName")))
		p.add(metavalidation.ValidateLabelSelector(b.LabelSelector, metavalidation.LabelSelectorValidationOptions{},
			at.Child("labelSelector")))
	default:
		p.errs = append(p.errs, field.Required(at, "either name or signerName must be specified"))
	}
	p.add(check.Required(b.Path, at.Child("path")))
	p.add(check.UserID(b.User, at.Child("user")))
	p.add(check.UnreservedPath(b.Path, at.Child("path")))
	p.addPath(b.Path, b.Path)
}

// The bounds of the lifetime of a pod certificate, in seconds.
const (
	minCertificateLife        = 3600
	maxCertificateLife        = 91 * 24 * 3600
	maxClusterCertificateLife = 24 * 3600
)

func (p *projection) certificate(c *corev1.PodCertificateProjection, at *field.Path) {
	p.add(check.SignerName(c.SignerName, at.Child("signerName")))
	if c.UserAnnotations != nil {
		for _, key := range slices.Sorted(maps.Keys(c.UserAnnotations)) {
			p.add(validation.IsDomainPrefixedKey(at.Child("userAnnotations"), strings.ToLower(key)))
		}
		if apivalidation.ValidateAnnotationsSize(c.UserAnnotations) != nil {
			p.errs = append(p.errs, field.TooLong(at.Child("userAnnotations"), "", apivalidation.TotalAnnotationSizeLimitB))
		}
	}
	p.add(check.UserID(c.User, at.Child("user")))
	p.add(check.OneOf(c.KeyType, at.Child("keyType"), "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"))
	if s := c.MaxExpirationSeconds; s != nil {
		if *s < minCertificateLife {
			p.errs = append(p.errs, field.Invalid(at.Child("maxExpirationSeconds"), *s,
				"if provided, maxExpirationSeconds must be >= 3600"))
		}
		limit := int32(maxCertificateLife)
		if isKubernetesSigner(c.SignerName) {
			limit = maxClusterCertificateLife
		}
		if *s > limit {
			p.errs = append(p.errs, field.Invalid(at.Child("maxExpirationSeconds"), *s,
				fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", limit)))
		}
	}
	paths := 0
	for _, f := range []struct{ name, path string }{
		{"credentialBundlePath", c.CredentialBundlePath}, {"keyPath", c.KeyPath}, {"certificateChainPath", c.CertificateChainPath},
	} {
		if f.path != "" {
			paths++
			p.add(check.UnreservedPath(f.path, at.Child(f.name)))
			p.addPath(f.path, f.path)
		}
	}
	if paths == 0 {
		p.errs = append(p.errs, field.Required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
}

// trustBundleNameErrors checks the name of a trust bundle, which begins with the name of its signer, if it has one.
func trustBundleNameErrors(name string) []string {
	i := strings.LastIndex(name, ":")
	return apivalidation.NameIsDNSSubdomain(name[i+1:], false)
}

func isKubernetesSigner(name string) bool {
	host, _, _ := strings.Cut(name, "/")
	return host == "kubernetes.io" || strings.HasSuffix(host, ".kubernetes.io")
}
