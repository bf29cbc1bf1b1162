package authn

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
)

const testIssuer = "https://kubernetes.default.svc.cluster.local"

// objects is a Lookup over a map with keys such as "pod/ns/name".
type objects map[string]any

func find[T any](o objects, resource, key string) (*T, error) {
	if obj, ok := o[resource+"/"+key].(*T); ok {
		return obj, nil
	}
	_, name, _ := strings.Cut(key, "/")
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
}

func (o objects) ServiceAccount(_ context.Context, ns, name string) (*corev1.ServiceAccount, error) {
	return find[corev1.ServiceAccount](o, "serviceaccounts", ns+"/"+name)
}

func (o objects) Pod(_ context.Context, ns, name string) (*corev1.Pod, error) {
	return find[corev1.Pod](o, "pods", ns+"/"+name)
}

func (o objects) Secret(_ context.Context, ns, name string) (*corev1.Secret, error) {
	return find[corev1.Secret](o, "secrets", ns+"/"+name)
}

func (o objects) Node(_ context.Context, name string) (*corev1.Node, error) {
	return find[corev1.Node](o, "nodes", "/"+name)
}

func meta(ns, name, uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(uid)}
}

// authnTest is an Authenticator with its certificate authorities, objects and a clock that tests move.
type authnTest struct {
	*Authenticator
	ca, proxyCA *authority
	objects     objects
	now         time.Time
	annotations map[string]string
	warnings    []string
	used        []string
}

func newAuthnTest(t testing.TB, change ...func(*Config)) *authnTest {
	t.Helper()
	w := &authnTest{ca: newAuthority(t, "ca"), proxyCA: newAuthority(t, "front-proxy-ca"), now: time.Now(),
		annotations: map[string]string{}}
	w.objects = objects{
		"serviceaccounts/ns/app": &corev1.ServiceAccount{ObjectMeta: meta("ns", "app", "sa-uid")},
		"pods/ns/web": &corev1.Pod{ObjectMeta: meta("ns", "web", "pod-uid"),
			Spec: corev1.PodSpec{ServiceAccountName: "app", NodeName: "n1"}},
		"secrets/ns/sec": &corev1.Secret{ObjectMeta: meta("ns", "sec", "secret-uid")},
		"nodes//n1":      &corev1.Node{ObjectMeta: meta("", "n1", "node-uid")},
	}
	cfg := Config{
		ClientCAs: w.ca.pool, FrontProxyCAs: w.proxyCA.pool,
		Issuers: []string{testIssuer}, SigningKey: newKey(t, elliptic.P256()), Lookup: w.objects,
		Anonymous:  PublicPaths,
		Now:        func() time.Time { return w.now },
		Annotate:   func(_ context.Context, key, value string) { w.annotations[key] = value },
		Warn:       func(_ context.Context, text string) { w.warnings = append(w.warnings, text) },
		LegacyUsed: func(_ context.Context, s *corev1.Secret, day string) { w.used = append(w.used, s.Name+" "+day) },
	}
	for _, f := range change {
		f(&cfg)
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.Authenticator = a
	return w
}

func newKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB, name string) *authority {
	a := &authority{t: t, key: newKey(t, elliptic.P256()), pool: x509.NewCertPool()}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(100 * time.Hour)}
	a.cert = a.sign(template, template, a.key)
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	template.SerialNumber, template.BasicConstraintsValid = big.NewInt(time.Now().UnixNano()), true
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

func (a *authority) client(name string, groups ...string) *x509.Certificate {
	return a.clientWithUsage(x509.ExtKeyUsageClientAuth, pkix.Name{CommonName: name, Organization: groups})
}

func (a *authority) clientWithUsage(usage x509.ExtKeyUsage, subject pkix.Name) *x509.Certificate {
	return a.sign(&x509.Certificate{Subject: subject, ExtKeyUsage: []x509.ExtKeyUsage{usage}}, a.cert, newKey(a.t, elliptic.P256()))
}

func request(path string, certs ...*x509.Certificate) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "https://server"+path, nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: certs}
	return r
}

func bearer(token string) *http.Request {
	r := request("/api")
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

// show returns an identity on one line.
func show(u user.Info) string {
	var b strings.Builder
	b.WriteString(u.GetName() + "[" + strings.Join(u.GetGroups(), " ") + "]")
	if u.GetUID() != "" {
		b.WriteString(" uid=" + u.GetUID())
	}
	return b.String()
}

func expect(t *testing.T, w *authnTest, r *http.Request, want string) user.Info {
	t.Helper()
	u, err := w.Request(r)
	if err != nil {
		t.Fatalf("refused: %v, want %s", err, want)
	}
	if got := show(u); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	return u
}

func expectRefused(t *testing.T, w *authnTest, r *http.Request, want string) {
	t.Helper()
	u, err := w.Request(r)
	if err == nil {
		t.Fatalf("accepted as %s, want %q", show(u), want)
	}
	if !strings.Contains(err.Error(), want) {
		t.Fatalf("error %q, want %q", err, want)
	}
}

func TestAnonymous(t *testing.T) {
	w := newAuthnTest(t)
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/version", "/version/"} {
		expect(t, w, request(path), "system:anonymous[system:unauthenticated]")
	}
	for _, path := range []string{"/", "/api", "/healthz/etcd", "/apis", "/openid/v1/jwks", "/metrics", "/livez/../api"} {
		if _, err := w.Request(request(path)); !errors.Is(err, ErrNoCredentials) {
			t.Errorf("%s: %v", path, err)
		}
	}
	// Invalid credentials are rejected even where none are required.
	r := request("/healthz")
	r.Header.Set("Authorization", "Bearer nonsense")
	expectRefused(t, w, r, "invalid bearer token")
	expectRefused(t, w, request("/healthz", newAuthority(t, "ca").client("admin", "system:masters")), "signed by unknown authority")
}

func TestBearerHeader(t *testing.T) {
	w := newAuthnTest(t)
	for _, tt := range []struct{ header, want string }{
		{"", ErrNoCredentials.Error()},
		{"Basic abc", ErrNoCredentials.Error()},
		{"Bearer", ErrNoCredentials.Error()},
		{"bearer x", "invalid bearer token"},
		{"BEARER x y", "invalid bearer token"},
		{"Bearer  x", ErrNoCredentials.Error()},
		{"Bearer " + strings.Repeat("a", maxToken+1), "invalid bearer token"},
	} {
		r := request("/api")
		r.Header.Set("Authorization", tt.header)
		expectRefused(t, w, r, tt.want)
	}
	if len(w.warnings) != 1 || !strings.Contains(w.warnings[0], "extra space before the bearer token") {
		t.Errorf("warnings %q", w.warnings)
	}
}

func TestCredentialsAreRemoved(t *testing.T) {
	w := newAuthnTest(t)
	r := request("/api", w.ca.client("alice"))
	r.Header.Set("Authorization", "Bearer whatever")
	r.Header.Set("X-Remote-User", "admin")
	r.Header.Set("X-Remote-Group", "system:masters")
	r.Header.Set("X-Remote-Uid", "1")
	r.Header.Set("X-Remote-Extra-Scopes", "all")
	r.Header["x-remote-extra-raw"] = []string{"all"}
	r.Header.Set("X-Remote-Thing", "kept")
	r.Header.Set("Accept", "application/json")
	expect(t, w, r, "alice[system:authenticated]")
	if len(r.Header) != 2 {
		t.Errorf("headers left: %v", r.Header)
	}
}

func TestNewRefusesInvalidConfigs(t *testing.T) {
	key := newKey(t, elliptic.P256())
	for name, cfg := range map[string]Config{
		"no issuer":         {SigningKey: key, Lookup: objects{}},
		"no lookup":         {SigningKey: key, Issuers: []string{testIssuer}},
		"empty issuer":      {Issuers: []string{""}},
		"unsupported curve": {SigningKey: newKey(t, elliptic.P224()), Issuers: []string{testIssuer}, Lookup: objects{}},
		"http keys":         {SigningKey: key, Issuers: []string{testIssuer}, Lookup: objects{}, JWKSURI: "http://example.org/keys"},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	a, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Request(bearer("a.b.c")); err == nil {
		t.Error("a token was accepted without any key")
	}
}
