package agentjoin

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/run/credentials"
	"proa.dev/run/pki"
	"proa.dev/run/settings"
)

// clusterInfo returns a ConfigMap kube-public/cluster-info with the CAs of these clusters, as JSON.
func clusterInfo(t *testing.T, of ...*pki.PKI) []byte {
	t.Helper()
	var bundle []byte
	for _, k := range of {
		bundle = append(bundle, k.CA().PEM...)
	}
	text, err := json.Marshal(&corev1.ConfigMap{Data: map[string]string{"kubeconfig": fmt.Sprintf(
		"apiVersion: v1\nkind: Config\nclusters: [{name: '', cluster: {server: https://192.0.2.7:6443, certificate-authority-data: %s}}]\n",
		base64.StdEncoding.EncodeToString(bundle))}})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// serveWithoutCA serves like kube-apiserver: with a certificate chain that does not include the CA. It collects the Authorization
// headers of all requests.
func serveWithoutCA(t *testing.T, k *pki.PKI, info []byte, authorizations *[]string) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*authorizations = append(*authorizations, r.Header.Get("Authorization"))
		if r.URL.Path != clusterInfoPath || info == nil {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write(info)
	}))
	pair, err := k.ServingCert(nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf := *pair
	leaf.Certificate = pair.Certificate[:1]
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{leaf}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

// TestServerWithoutCAInChain checks that an agent trusts a server whose certificate chain does not include the CA only if the
// ConfigMap cluster-info has the CA that the token names, and that CA has signed the server's certificate.
func TestServerWithoutCAInChain(t *testing.T) {
	own, other := ensurePKI(t, t.TempDir(), 0), ensurePKI(t, t.TempDir(), 0)
	byCert, err := credentials.NewJoinToken("abcdef", "0123456789abcdef", own.CA().PEM)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(own.CA().Cert.RawSubjectPublicKeyInfo)
	byKey := byCert
	byKey.CA = hex.EncodeToString(sum[:])
	for _, tt := range []struct {
		name    string
		serving *pki.PKI
		info    []byte
		token   credentials.JoinToken
		wantErr string // empty if the server is trusted
	}{
		{"by the hash of the certificate", own, clusterInfo(t, own), byCert, ""},
		{"by the hash of the public key, as kubeadm prints it", own, clusterInfo(t, own), byKey, ""},
		{"one of several authorities", own, clusterInfo(t, other, own), byCert, ""},
		{"the authority of another cluster", other, clusterInfo(t, other), byCert,
			"none of its authorities is the one that the token names"},
		{"another server that shows what the true one shows", other, clusterInfo(t, own), byCert, "the certificate of the server: x509"},
		{"not readable without credentials", own, nil, byCert, "cannot be read without a login: the server answers 403"},
		{"without authorities", own, []byte(`{"data":{"kubeconfig":"clusters: []"}}`), byCert, "there is no certificate in it"},
		{"nonsense", own, []byte("nonsense"), byCert, "the ConfigMap kube-public/cluster-info: invalid character"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var authorizations []string
			a := Agent{settings.AgentConfig{Server: serveWithoutCA(t, tt.serving, tt.info, &authorizations), Token: tt.token.String()}}
			known, err := a.Authorities(t.Context(), t.TempDir())
			if slices.ContainsFunc(authorizations, func(header string) bool { return header != "" }) {
				t.Errorf("a server that is not trusted yet gets the credentials %q", authorizations)
			}
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) || !strings.Contains(err.Error(), "--kubeconfig") {
					t.Errorf("refused with %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !known.Pool().Equal(own.CA().Pool) {
				t.Error("another authority is trusted")
			}
		})
	}
}
