package run_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/nodejoin"
	"proa.dev/kinds/lib/streamoptions"
	"proa.dev/proatest"
	"proa.dev/run/bootstraproles"
)

// httpClient sends requests to a cluster over HTTPS, with a bearer token, a client certificate, or both.
type httpClient struct {
	*testing.T
	url, token string
	http       http.Client
}

func newHTTPClient(t *testing.T, c *proatest.Cluster, token string, certs ...tls.Certificate) *httpClient {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.Config.CAData)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: certs, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return &httpClient{t, c.Config.Host, token, http.Client{Transport: transport}}
}

// do sends a request and returns the code and the body of the answer.
func (c *httpClient) do(method, path string, body any, headers ...string) (int, string) {
	c.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		c.Fatal(err)
	}
	req, err := http.NewRequestWithContext(c.Context(), method, c.url+path, bytes.NewReader(text))
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp.StatusCode, "" // the body has no end
	}
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		c.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// open sends a request without a body and returns the response, which the caller closes. headers has names and values in turn.
func (c *httpClient) open(method, path string, headers ...string) *http.Response {
	c.Helper()
	req, err := http.NewRequestWithContext(c.Context(), method, c.url+path, http.NoBody)
	if err != nil {
		c.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	return resp
}

// upgrade sends a request to upgrade the connection, and returns the status code.
func (c *httpClient) upgrade(path string, headers ...string) int {
	c.Helper()
	resp := c.open(http.MethodPost, path, headers...)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// signingRequest returns a request for the client certificate of a node that claims to come from that node and an administrator.
func signingRequest(t *testing.T, name, node string) (*certificatesv1.CertificateSigningRequest, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{"client auth", "digital signature"},
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			Username:   "system:node:" + node, UID: "1", Groups: []string{"system:nodes", "system:masters"},
			Extra: map[string]certificatesv1.ExtraValue{nodejoin.NodeExtra: {node}},
		},
	}, key
}

// createBootstrapToken stores a bootstrap token and returns it; node is the only node that it is valid for, or empty for any.
func createBootstrapToken(t *testing.T, c *proatest.Cluster, id, node string) string {
	t.Helper()
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id}, Type: "bootstrap.kubernetes.io/token",
		Data: map[string][]byte{
			"token-id": []byte(id), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
			"auth-extra-groups": []byte(bootstraproles.JoinGroup),
		},
	}
	if node != "" {
		s.Data[nodejoin.NodeSecretKey] = []byte(node)
	}
	if _, err := c.Client.Create(t.Context(), gr.Secrets, s); err != nil {
		t.Fatal(err)
	}
	return id + ".0123456789abcdef"
}

// awaitSigned waits until a certificate signing request is signed or denied.
func awaitSigned(t *testing.T, c *proatest.Cluster, name string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	view, err := c.Client.Part(ctx, gr.CertificateSigningRequests, client.Scope{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	for e := range view.Events(ctx) {
		r, ok := e.Object.(*certificatesv1.CertificateSigningRequest)
		if ok && (len(r.Status.Certificate) > 0 || len(r.Status.Conditions) > 0 &&
			r.Status.Conditions[0].Type == certificatesv1.CertificateDenied) {
			return r
		}
	}
	t.Fatalf("request %s was not answered", name)
	return nil
}

// TestTokenGetsNoCertificateOfExistingNode checks that a client with a bootstrap token gets no certificate of an existing node,
// whatever it writes about itself into its request, and that it cannot impersonate a token for that node.
func TestTokenGetsNoCertificateOfExistingNode(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	if _, err := c.Client.Create(t.Context(), gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "victim"}}); err != nil {
		t.Fatal(err)
	}
	const at = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	tokenClient := newHTTPClient(t, c, createBootstrapToken(t, c, "aaaaaa", ""))
	for _, tt := range []struct {
		name, node, token, want string
	}{
		{"becomes", "victim", "", "NodeExists"}, {"joins", "fresh", "", "AutoApproved"},
		{"again", "victim", createBootstrapToken(t, c, "bbbbbb", "victim"), "AutoApproved"},
		{"other", "another", createBootstrapToken(t, c, "cccccc", "victim"), "TokenForOtherNode"},
	} {
		requester := tokenClient
		if tt.token != "" {
			requester = newHTTPClient(t, c, tt.token)
		}
		request, _ := signingRequest(t, tt.name, tt.node)
		if code, answer := requester.do("POST", at, request); code != http.StatusCreated {
			t.Fatalf("%s: %d %s", tt.name, code, answer)
		}
		r := awaitSigned(t, c, tt.name)
		if got := r.Status.Conditions[0].Reason; got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if r.Spec.Username == "system:node:"+tt.node || len(r.Spec.Groups) == 2 || r.Spec.UID != "" ||
			(tt.token == "" && len(r.Spec.Extra) > 0) {
			t.Errorf("%s: the server stores the identity that the client sent: %+v", tt.name, r.Spec)
		}
	}

	// To impersonate a token for a node needs the permission to impersonate with that extra value.
	impersonate := []string{"Impersonate-User", "system:bootstrap:zzzzzz", "Impersonate-Group", bootstraproles.JoinGroup,
		"Impersonate-Extra-authentication.proa.dev%2fnode", "victim"}
	request, _ := signingRequest(t, "pretends", "victim")
	if code, answer := tokenClient.do("POST", at, request, impersonate...); code != http.StatusForbidden {
		t.Errorf("a token impersonates a token for a node: %d %s", code, answer)
	}
	grantImpersonation(t, c, "system:bootstrap:aaaaaa", "users", "groups")
	deadline := time.Now().Add(time.Minute)
	for {
		code, answer := tokenClient.do("POST", at, request, impersonate[:4]...)
		if code == http.StatusCreated {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the permission to impersonate users does not arrive: %d %s", code, answer)
		}
	}
	again, _ := signingRequest(t, "pretends2", "victim")
	if code, answer := tokenClient.do("POST", at, again, impersonate...); code != http.StatusForbidden {
		t.Errorf("who may impersonate users and groups impersonates a token for a node: %d %s", code, answer)
	}
}

// TestTunnelNeedsVerifiedCertificate checks that a tunnel is opened with the certificate of its node, and not for a client that
// impersonates the node and presents a self-signed certificate.
func TestTunnelNeedsVerifiedCertificate(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	token := createBootstrapToken(t, c, "aaaaaa", "")
	grantImpersonation(t, c, "system:bootstrap:aaaaaa", "users", "groups")
	selfSigned := func(node string) tls.Certificate {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}
	upgrade := []string{"Connection", "Upgrade", "Upgrade", streamoptions.TunnelProtocol, streamoptions.TunnelFrom, "p",
		streamoptions.TunnelAt, "192.0.2.1"}
	impersonate := append([]string{"Impersonate-User", "system:node:a", "Impersonate-Group", "system:nodes"}, upgrade...)
	attacker := newHTTPClient(t, c, token, selfSigned("a"))
	deadline := time.Now().Add(time.Minute)
	for { // until the authorizer has the new role
		code, answer := attacker.do("POST", streamoptions.TunnelPath, nil, impersonate...)
		if code == http.StatusSwitchingProtocols {
			t.Fatal("a tunnel was opened with a certificate that was not verified")
		}
		if strings.Contains(answer, "a tunnel is opened with the certificate of its node") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("impersonating a node: %d %s", code, answer)
		}
	}

	// The node itself opens a tunnel with the certificate that it got for the token.
	request, key := signingRequest(t, "a", "a")
	if code, answer := newHTTPClient(t, c, token).do("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests",
		request); code != http.StatusCreated {
		t.Fatalf("%d %s", code, answer)
	}
	block, _ := pem.Decode(awaitSigned(t, c, "a").Status.Certificate)
	if block == nil {
		t.Fatal("no certificate was issued")
	}
	node := newHTTPClient(t, c, "", tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key})
	if code := node.upgrade(streamoptions.TunnelPath, upgrade...); code != http.StatusSwitchingProtocols {
		t.Errorf("the node itself: %d", code)
	}
}

// grantImpersonation allows a user to impersonate some resources, such as users and groups.
func grantImpersonation(t *testing.T, c *proatest.Cluster, user string, resources ...string) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "impersonates"}
	if _, err := c.Client.Create(t.Context(), gr.ClusterRoles, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: resources},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client.Create(t.Context(), gr.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}); err != nil {
		t.Fatal(err)
	}
}
