package nodestatus

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
)

// csrTimeout is the timeout of a certificate signing request: people may have to approve it.
const csrTimeout = 15 * time.Minute

// RequestCertificates returns an Issuer that creates CertificateSigningRequests. open returns the client to use, which changes: first
// that of a bootstrap token, later the node's own.
func RequestCertificates(open func() client.Client, signer string) Issuer {
	purpose := certificatesv1.UsageClientAuth
	if signer == certificatesv1.KubeletServingSignerName {
		purpose = certificatesv1.UsageServerAuth
	}
	return func(ctx context.Context, request []byte, key crypto.Signer) ([]byte, error) {
		name, err := requestName(key.Public(), signer)
		if err != nil {
			return nil, err
		}
		ctx, stop := context.WithTimeout(ctx, csrTimeout)
		defer stop()
		c := open()
		_, err = c.Create(ctx, gr.CertificateSigningRequests, &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: request, SignerName: signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, purpose},
			},
		})
		// The same key results in the same name: it is the request of this node from before a restart.
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("ask for a certificate: %w", err)
		}
		return awaitCSR(ctx, c, name)
	}
}

// requestName returns the name of the request for a key and a signer.
func requestName(public crypto.PublicKey, signer string) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(slices.Concat(der, []byte("|"+signer)))
	return "node-csr-" + base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// refusedError says that a request will never result in a certificate.
type refusedError struct{ why string }

func (e *refusedError) Error() string { return e.why }

// IsRefused reports whether a certificate was denied, or its signer failed, so that the same request is of no use.
func IsRefused(err error) bool {
	_, is := errors.AsType[*refusedError](err)
	return is
}

func refused(format string, args ...any) error { return &refusedError{fmt.Sprintf(format, args...)} }

// awaitCSR waits until a request is decided.
func awaitCSR(ctx context.Context, c client.Client, name string) ([]byte, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	view, err := c.Part(ctx, gr.CertificateSigningRequests, client.Scope{Name: name})
	if err != nil {
		return nil, fmt.Errorf("wait for the certificate: %w", err)
	}
	for e := range view.Events(ctx) {
		request, ok := e.Object.(*certificatesv1.CertificateSigningRequest)
		if !ok {
			continue
		}
		if e.Deleted {
			return nil, refused("the certificate signing request %s was deleted", name)
		}
		for _, x := range request.Status.Conditions {
			switch x.Type {
			case certificatesv1.CertificateDenied:
				return nil, refused("certificate signing request %s is denied, reason: %s, message: %s", name, x.Reason, x.Message)
			case certificatesv1.CertificateFailed:
				return nil, refused("certificate signing request %s failed, reason: %s, message: %s", name, x.Reason, x.Message)
			}
		}
		if len(request.Status.Certificate) > 0 {
			return request.Status.Certificate, nil
		}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("certificate signing request %s was not answered (approve it with kubectl certificate approve %s): %w", name, name, err)
	}
	return nil, errors.New("the watch of the certificate signing request has ended")
}

// subject returns the subject of a node's certificates.
func subject(node string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
}

// ClientRequest returns the contents of a node's client certificate.
func ClientRequest(node string) *x509.CertificateRequest {
	return &x509.CertificateRequest{Subject: subject(node)}
}

// ServingRequest returns the contents of a node's serving certificate; nil without an address.
func ServingRequest(node string, addresses []corev1.NodeAddress) *x509.CertificateRequest {
	r := &x509.CertificateRequest{Subject: subject(node)}
	var ips, names []string
	for _, a := range addresses {
		switch {
		case net.ParseIP(a.Address) != nil:
			ips = append(ips, a.Address)
		case a.Address != "" && a.Type != corev1.NodeInternalIP && a.Type != corev1.NodeExternalIP:
			names = append(names, a.Address)
		}
	}
	slices.Sort(ips)
	slices.Sort(names)
	r.DNSNames = slices.Compact(names)
	for _, ip := range slices.Compact(ips) {
		r.IPAddresses = append(r.IPAddresses, net.ParseIP(ip))
	}
	if len(r.IPAddresses) == 0 {
		return nil
	}
	return r
}
