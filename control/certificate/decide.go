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

	"proa.dev/kinds/nodeaddress"
)

// How long requests are kept: after they were answered, and when nobody answers.
const (
	keepAnswered = time.Hour
	keepPending  = 24 * time.Hour
)

// plan is the next step of a request: at most one of remove, invalid, sign, ask and node.
type plan struct {
	remove bool
	// invalid says why the signer can never sign the request.
	invalid string
	sign    *x509.CertificateRequest
	// ask holds the permissions with any of which the request is approved, in order.
	ask []asked
	// node is the Node whose addresses the names of a serving certificate must be.
	node string
	// again is when the request is to be cleared away.
	again time.Duration
}

// asked is a permission, and what is said when it is there. Renewal says that it is one to have a new certificate of one's own.
type asked struct {
	permission, message string
	renewal             bool
}

func decide(r *certificatesv1.CertificateSigningRequest, now time.Time) plan {
	var p plan
	if end := end(r); !end.IsZero() {
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
	approved, denied := has(r, certificatesv1.CertificateApproved), has(r, certificatesv1.CertificateDenied)
	switch {
	case denied:
	case !approved:
		p.ask = asks(r, request)
		p.node = serves(r, request)
	case !failed(r) && ours(r.Spec.SignerName):
		if err := fits(r.Spec.SignerName, request, r.Spec.Usages); err != nil {
			p.invalid = err.Error()
		} else {
			p.sign = request
		}
	}
	return p
}

// asks are the permissions that let a kubelet have a certificate for itself, or another one have it for it.
func asks(r *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) (out []asked) {
	if r.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName || fits(r.Spec.SignerName, request, r.Spec.Usages) != nil {
		return nil
	}
	if r.Spec.Username == request.Subject.CommonName {
		out = append(out, asked{"selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.", true})
	}
	return append(out, asked{"nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.", false})
}

// serves is the node that asks for a certificate to serve with, for itself; empty for any other request.
func serves(r *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest) string {
	if r.Spec.SignerName != certificatesv1.KubeletServingSignerName || fits(r.Spec.SignerName, request, r.Spec.Usages) != nil {
		return ""
	}
	if r.Spec.Username != request.Subject.CommonName || !slices.Contains(r.Spec.Groups, "system:nodes") {
		return ""
	}
	return strings.TrimPrefix(request.Subject.CommonName, "system:node:")
}

// owns says that a Node has every name of a request in its status, that no other Node has any of them, and that none is reserved:
// names of the API, addresses of Services and Pods, loopback. Admission has refused those when the node claimed them; here the
// same is asked again before a certificate makes others believe it.
func owns(node *corev1.Node, request *x509.CertificateRequest, others iter.Seq[*corev1.Node], reserved *nodeaddress.Cluster) bool {
	names := slices.Clone(request.DNSNames)
	for _, ip := range request.IPAddresses {
		names = append(names, ip.String())
	}
	for _, name := range names {
		if reserved.Reserved(name) != "" || !slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == name }) {
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

// withRanges adds the ranges of Services that objects of the cluster have added.
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

// patience is how long to wait before a permission is asked for again: the longer, the older the request.
func patience(r *certificatesv1.CertificateSigningRequest, now time.Time) time.Duration {
	return min(max(now.Sub(r.CreationTimestamp.Time), 200*time.Millisecond), 1000*time.Second)
}

// end is when a request is of no more use; zero if it stays.
func end(r *certificatesv1.CertificateSigningRequest) (first time.Time) {
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

// expiry is the end of a certificate.
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

// has says that a request has a condition, whatever its status: an approval cannot be taken back.
func has(r *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) bool {
	for _, c := range r.Status.Conditions {
		if c.Type == t {
			return true
		}
	}
	return false
}

// failed says that the signer has given up. An empty status counts as true, as old clients wrote none.
func failed(r *certificatesv1.CertificateSigningRequest) bool {
	for _, c := range r.Status.Conditions {
		if c.Type == certificatesv1.CertificateFailed && (c.Status == "" || c.Status == corev1.ConditionTrue) {
			return true
		}
	}
	return false
}
