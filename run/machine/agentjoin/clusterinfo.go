package agentjoin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/run/credentials"
)

const (
	// clusterInfoPath is the path of the ConfigMap that clusters show to everybody: a kubeconfig with the certificate
	// of their authority.
	clusterInfoPath = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
	// maxClusterInfo bounds the size of that ConfigMap, and clusterInfoTimeout the time to read it.
	maxClusterInfo     = 1 << 20
	clusterInfoTimeout = 10 * time.Second
)

// authorityFromClusterInfo returns the certificate of the authority that the token names, from the ConfigMap
// kube-public/cluster-info of a server that shows only its own certificate, as kube-apiserver does. The server is not
// trusted yet: it does not get the token, and of its answer only the certificate counts whose hash is in the token, if
// that authority has signed the certificate of this same connection. The signature of the ConfigMap would add nothing
// to that.
func authorityFromClusterInfo(ctx context.Context, server *url.URL, token credentials.JoinToken) (*x509.Certificate, error) {
	transport := &http.Transport{TLSHandshakeTimeout: clusterInfoTimeout, TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, //nolint:gosec // G402: the certificates are compared with the token below
	}}
	defer transport.CloseIdleConnections()
	refuseRedirects := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	ask := &http.Client{Transport: transport, Timeout: clusterInfoTimeout, CheckRedirect: refuseRedirects}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.JoinPath(clusterInfoPath).String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := ask.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read the ConfigMap kube-public/cluster-info: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the ConfigMap kube-public/cluster-info cannot be read without a login: the server answers %s", resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxClusterInfo))
	if err != nil {
		return nil, fmt.Errorf("read the ConfigMap kube-public/cluster-info: %w", err)
	}
	authority, err := namedAuthority(body, token)
	if err != nil {
		return nil, fmt.Errorf("the ConfigMap kube-public/cluster-info: %w", err)
	}
	if err := signedBy(authority, resp.TLS.PeerCertificates, server.Hostname()); err != nil {
		return nil, err
	}
	return authority, nil
}

// namedAuthority returns the certificate in a ConfigMap cluster-info that the token names.
func namedAuthority(configMap []byte, token credentials.JoinToken) (*x509.Certificate, error) {
	var m corev1.ConfigMap
	if err := json.Unmarshal(configMap, &m); err != nil {
		return nil, err
	}
	bundle, err := credentials.ClusterInfoAuthorities([]byte(m.Data["kubeconfig"]))
	if err != nil {
		return nil, err
	}
	certs, err := parseBundle(bundle)
	if err != nil {
		return nil, err
	}
	for _, c := range certs {
		if token.Names(c) {
			return c, nil
		}
	}
	return nil, errors.New("none of its authorities is the one that the token names")
}

// signedBy returns an error unless an authority has signed the certificate that a server has shown, for the host name
// that was used.
func signedBy(authority *x509.Certificate, shown []*x509.Certificate, host string) error {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(authority)
	for _, c := range shown[1:] {
		between.AddCert(c)
	}
	if _, err := shown[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: host}); err != nil {
		return fmt.Errorf("the certificate of the server: %w", err)
	}
	return nil
}
