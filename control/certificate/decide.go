package certificate

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/nodeaddress"
)

// Requests are kept for so long after they were answered, and while nobody answers them.
const (
	keepAnswered = time.Hour
	keepPending  = 24 * time.Hour
)

// plan is the next step of a request: at most one of remove, invalid, sign, ask and node.
type plan struct {
	remove bool
	// invalid is the reason why the signer can never sign the request.
	invalid string
	sign    *x509.CertificateRequest
	// permissions holds permissions, in order; any of them is enough for an approval.
	permissions []permissionCheck
	// node is the Node that requests a serving certificate; the names in it must be its addresses.
	node string
	// again is the time until the request is to be deleted.
	again time.Duration
}

// permissionCheck is a permission, and the message of the approval. renewal is true for the permission of a node to renew its own
// certificate.
type permissionCheck struct {
	permission, message string
	renewal             bool
}

func decide(r *certificatesv1.CertificateSigningRequest, now time.Time) plan {
	var p plan
	if end := deletionTime(r); !end.IsZero() {
		if p.again = end.Sub(now); p.again <= 0 {
			return plan{remove: true}
		}
	}
	if len(r.Status.Certificate) > 0 {
		return p
	}
	request, err := parse(r.Spec.Request)
	if err != nil {
		return p
	}
	approved, denied := hasCondition(r, certificatesv1.CertificateApproved), hasCondition(r, certificatesv1.CertificateDenied)
	switch {
	case denied:
	case !approved:
		p.permissions = permissionsFor(r, request)
		p.node = servingNode(r, request)
	case !hasFailed(r) && isBuiltInSigner(r.Spec.SignerName):
		if err := checkRequest(r.Spec.SignerName, request, r.Spec.Usages); err != nil {
			p.invalid = err.Error()
		} else {
			p.sign = request
		}
	}
	return p
}

// permissionsFor returns the permissions to check for a kubelet's client certificate: its own, if it renews the certificate, and that
// of other requestors, such as bootstrap tokens.
func permissionsFor(r *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) (out []permissionCheck) {
	if r.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName ||
		checkRequest(r.Spec.SignerName, request, r.Spec.Usages) != nil {
		return nil
	}
	if r.Spec.Username == request.Subject.CommonName {
		out = append(out, permissionCheck{"selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.", true})
	}
	return append(out, permissionCheck{"nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.", false})
}

// servingNode returns the node that requests a serving certificate for itself; empty for any other request.
func servingNode(r *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) string {
	if r.Spec.SignerName != certificatesv1.KubeletServingSignerName || checkRequest(r.Spec.SignerName, request, r.Spec.Usages) != nil {
		return ""
	}
	if r.Spec.Username != request.Subject.CommonName || !slices.Contains(r.Spec.Groups, "system:nodes") {
		return ""
	}
	return strings.TrimPrefix(request.Subject.CommonName, "system:node:")
}

// ownsNames reports whether a Node has every name of a request in its status, no other Node has any of them, and none is reserved:
// names of the API server, addresses of Services and Pods, loopback. Admission rejects reserved addresses in the status of a
// Node; this is checked again before a certificate is issued.
func ownsNames(node *corev1.Node, request *x509.CertificateRequest, others iter.Seq[*corev1.Node], reserved *nodeaddress.Cluster) bool {
	names := slices.Clone(request.DNSNames)
	for _, ip := range request.IPAddresses {
		names = append(names, ip.String())
	}
	for _, name := range names {
		if reserved.Reserved(name) != "" ||
			!slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == name }) {
			return false
		}
		for other := range others {
			if other.Name != node.Name && nodeaddress.Owns(other, name) {
				return false
			}
		}
	}
	return true
}

// withRanges adds the ranges of ServiceCIDR objects to the reserved addresses.
func withRanges(reserved nodeaddress.Cluster, ranges iter.Seq[*networkingv1.ServiceCIDR]) *nodeaddress.Cluster {
	reserved.Services = slices.Clone(reserved.Services)
	for r := range ranges {
		for _, text := range r.Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				reserved.Services = append(reserved.Services, p)
			}
		}
	}
	return &reserved
}

// retryAfter returns the time until a permission is checked again: the older the request, the longer.
func retryAfter(r *certificatesv1.CertificateSigningRequest, now time.Time) time.Duration {
	return min(max(now.Sub(r.CreationTimestamp.Time), 200*time.Millisecond), 1000*time.Second)
}

// deletionTime returns when a request is to be deleted; zero if it is kept.
func deletionTime(r *certificatesv1.CertificateSigningRequest) (first time.Time) {
	by := func(t time.Time) {
		if first.IsZero() || t.Before(first) {
			first = t
		}
	}
	after := func(t metav1.Time, keep time.Duration) {
		if !t.IsZero() {
			by(t.Add(keep))
		}
	}
	issued := len(r.Status.Certificate) > 0
	if len(r.Status.Conditions) == 0 {
		after(r.CreationTimestamp, keepPending)
	}
	for _, c := range r.Status.Conditions {
		switch {
		case c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed:
			after(c.LastUpdateTime, keepAnswered)
		case c.Type == certificatesv1.CertificateApproved && !issued:
			after(c.LastUpdateTime, keepPending)
		case c.Type == certificatesv1.CertificateApproved:
			expires, ok := expiry(r.Status.Certificate)
			if ok && c.Reason == autoApproved && keepsName(r) {
				by(expires.Add(keepFirst))
				continue
			}
			if c.Reason == autoApproved && takesName(r) {
				after(c.LastUpdateTime, firstLife+keepFirst)
				continue
			}
			after(c.LastUpdateTime, keepAnswered)
			if ok {
				by(expires)
			}
		}
	}
	return first
}

// expiry returns when a certificate expires.
func expiry(cert []byte) (time.Time, bool) {
	block, _ := pem.Decode(cert)
	if block == nil {
		return time.Time{}, false
	}
	certs, err := x509.ParseCertificates(block.Bytes)
	if err != nil || len(certs) == 0 {
		return time.Time{}, false
	}
	return certs[0].NotAfter, true
}

func parse(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// hasCondition reports whether a request has a condition of a type with any status: an approval cannot be withdrawn.
func hasCondition(r *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) bool {
	for _, c := range r.Status.Conditions {
		if c.Type == t {
			return true
		}
	}
	return false
}

// hasFailed reports whether the request has failed. An empty status counts as true, because old clients wrote none.
func hasFailed(r *certificatesv1.CertificateSigningRequest) bool {
	for _, c := range r.Status.Conditions {
		if c.Type == certificatesv1.CertificateFailed && (c.Status == "" || c.Status == corev1.ConditionTrue) {
			return true
		}
	}
	return false
}
