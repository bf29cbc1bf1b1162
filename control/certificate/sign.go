package certificate

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
)

// isBuiltInSigner reports whether the cluster itself runs a signer.
func isBuiltInSigner(signer string) bool {
	switch signer {
	case certificatesv1.KubeAPIServerClientSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName,
		certificatesv1.KubeletServingSignerName,
		certificatesv1beta1.LegacyUnknownSignerName:
		return true
	}
	return false
}

// checkRequest returns an error if a signer does not sign such a request.
func checkRequest(signer string, r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch signer {
	case certificatesv1.KubeAPIServerClientSignerName:
		return clientUsages(usages)
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return kubeletClient(r, usages)
	case certificatesv1.KubeletServingSignerName:
		return kubeletServing(r, usages)
	}
	return nil // the legacy signer signs every approved request
}

func clientUsages(usages []certificatesv1.KeyUsage) error {
	for _, u := range usages {
		if u != certificatesv1.UsageDigitalSignature && u != certificatesv1.UsageKeyEncipherment && u != certificatesv1.UsageClientAuth {
			return fmt.Errorf("invalid usage for client certificate: %s", u)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	return nil
}

func kubeletClient(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !slices.Equal(r.Subject.Organization, []string{"system:nodes"}):
		return errors.New("subject organization is not system:nodes")
	case len(r.DNSNames) > 0:
		return errors.New("DNS subjectAltNames are not allowed")
	case len(r.EmailAddresses) > 0:
		return errors.New("Email subjectAltNames are not allowed")
	case len(r.IPAddresses) > 0:
		return errors.New("IP subjectAltNames are not allowed")
	case len(r.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	case !strings.HasPrefix(r.Subject.CommonName, "system:node:"):
		return errors.New("subject common name does not begin with system:node:")
	}
	return checkUsages(usages, certificatesv1.UsageClientAuth)
}

func kubeletServing(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case !slices.Equal(r.Subject.Organization, []string{"system:nodes"}):
		return errors.New("subject organization is not system:nodes")
	case len(r.DNSNames) == 0 && len(r.IPAddresses) == 0:
		return errors.New("DNS or IP subjectAltName is required")
	case len(r.EmailAddresses) > 0:
		return errors.New("Email subjectAltNames are not allowed")
	case len(r.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	}
	if err := checkUsages(usages, certificatesv1.UsageServerAuth); err != nil {
		return err
	}
	if !strings.HasPrefix(r.Subject.CommonName, "system:node:") {
		return errors.New("subject common name does not begin with system:node:")
	}
	return nil
}

// checkUsages returns an error unless the usages are those of a TLS key for a purpose; key encipherment may be missing, because
// only RSA keys need it.
func checkUsages(usages []certificatesv1.KeyUsage, purpose certificatesv1.KeyUsage) error {
	full := []certificatesv1.KeyUsage{purpose, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment}
	slices.Sort(full)
	have := slices.Sorted(slices.Values(usages))
	have = slices.Compact(have)
	if slices.Equal(have, full) ||
		slices.Equal(have, slices.DeleteFunc(slices.Clone(full),
			func(u certificatesv1.KeyUsage) bool { return u == certificatesv1.UsageKeyEncipherment })) {
		return nil
	}
	return fmt.Errorf("usages did not match %v", full)
}

// validity returns how long a certificate is valid: as long as the request wants, within bounds.
func validity(longest time.Duration, seconds *int32) time.Duration {
	if seconds == nil {
		return longest
	}
	wanted := time.Duration(*seconds) * time.Second
	switch {
	case wanted > longest:
		return longest
	case wanted < shortest:
		return shortest
	}
	return wanted
}

const (
	shortest = 10 * time.Minute
	// backdate tolerates clocks that are a little behind. It shortens the validity of certificates, except of those that are
	// valid for less than shortLived.
	backdate   = 5 * time.Minute
	shortLived = 8 * time.Hour
)

// issuer is a certificate authority, and the time of issue.
type issuer struct {
	cert *x509.Certificate
	key  crypto.Signer
	now  time.Time
}

// sign returns the certificate of a request in PEM: with its subject, names and usages, but none of the extensions that it
// asks for.
func sign(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage, life time.Duration, by issuer) ([]byte, error) {
	if err := r.CheckSignature(); err != nil {
		return nil, fmt.Errorf("unable to verify certificate request signature: %w", err)
	}
	until := by.cert.NotAfter
	if !by.now.Before(until) {
		return nil, fmt.Errorf("refusing to sign a certificate that expired in the past: NotAfter=%v", until)
	}
	usage, extended, err := keyUsages(usages)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
	if err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	notAfter := by.now.Add(life)
	if life >= shortLived {
		notAfter = notAfter.Add(-backdate)
	}
	if notAfter.After(until) {
		notAfter = until
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: r.Subject, DNSNames: r.DNSNames, IPAddresses: r.IPAddresses, EmailAddresses: r.EmailAddresses,
		URIs:               r.URIs,
		PublicKeyAlgorithm: r.PublicKeyAlgorithm, PublicKey: r.PublicKey, KeyUsage: usage, ExtKeyUsage: extended,
		NotBefore: by.now.Add(-backdate), NotAfter: notAfter, BasicConstraintsValid: true,
	}, by.cert, r.PublicKey, by.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// keyUsages translates the key usages of the API.
func keyUsages(usages []certificatesv1.KeyUsage) (x509.KeyUsage, []x509.ExtKeyUsage, error) {
	basic := map[certificatesv1.KeyUsage]x509.KeyUsage{
		certificatesv1.UsageSigning: x509.KeyUsageDigitalSignature, certificatesv1.UsageDigitalSignature: x509.KeyUsageDigitalSignature,
		certificatesv1.UsageContentCommitment: x509.KeyUsageContentCommitment,
		certificatesv1.UsageKeyEncipherment:   x509.KeyUsageKeyEncipherment,
		certificatesv1.UsageKeyAgreement:      x509.KeyUsageKeyAgreement,
		certificatesv1.UsageDataEncipherment:  x509.KeyUsageDataEncipherment,
		certificatesv1.UsageCertSign:          x509.KeyUsageCertSign, certificatesv1.UsageCRLSign: x509.KeyUsageCRLSign,
		certificatesv1.UsageEncipherOnly: x509.KeyUsageEncipherOnly, certificatesv1.UsageDecipherOnly: x509.KeyUsageDecipherOnly,
	}
	extended := map[certificatesv1.KeyUsage]x509.ExtKeyUsage{
		certificatesv1.UsageAny: x509.ExtKeyUsageAny, certificatesv1.UsageServerAuth: x509.ExtKeyUsageServerAuth,
		certificatesv1.UsageClientAuth: x509.ExtKeyUsageClientAuth, certificatesv1.UsageCodeSigning: x509.ExtKeyUsageCodeSigning,
		certificatesv1.UsageEmailProtection: x509.ExtKeyUsageEmailProtection, certificatesv1.UsageSMIME: x509.ExtKeyUsageEmailProtection,
		certificatesv1.UsageIPsecEndSystem: x509.ExtKeyUsageIPSECEndSystem, certificatesv1.UsageIPsecTunnel: x509.ExtKeyUsageIPSECTunnel,
		certificatesv1.UsageIPsecUser: x509.ExtKeyUsageIPSECUser, certificatesv1.UsageTimestamping: x509.ExtKeyUsageTimeStamping,
		certificatesv1.UsageOCSPSigning:  x509.ExtKeyUsageOCSPSigning,
		certificatesv1.UsageMicrosoftSGC: x509.ExtKeyUsageMicrosoftServerGatedCrypto,
		certificatesv1.UsageNetscapeSGC:  x509.ExtKeyUsageNetscapeServerGatedCrypto,
	}
	var usage x509.KeyUsage
	var unknown []certificatesv1.KeyUsage
	purposes := map[x509.ExtKeyUsage]bool{}
	for _, u := range usages {
		if bit, ok := basic[u]; ok {
			usage |= bit
		} else if e, ok := extended[u]; ok {
			purposes[e] = true
		} else {
			unknown = append(unknown, u)
		}
	}
	if len(unknown) > 0 {
		return 0, nil, fmt.Errorf("unrecognized usage values: %q", unknown)
	}
	return usage, slices.Sorted(maps.Keys(purposes)), nil
}
