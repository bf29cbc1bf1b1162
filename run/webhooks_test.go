package run_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/client-go/rest"

	"proa.dev/proatest"
	"proa.dev/run"
)

// externalServices is an HTTPS server with the services that a cluster calls: an OpenID Connect issuer, and the authentication,
// authorization and audit webhooks. The webhooks below /moved/ redirect to /redirected/, and those below /echo/ return invalid
// answers that repeat the request.
type externalServices struct {
	*testing.T
	*httptest.Server
	key jose.JSONWebKey

	mu         sync.Mutex // guards events and stolen
	events     bytes.Buffer
	redirected bytes.Buffer // requests that followed a redirect
}

func newExternalServices(t *testing.T) *externalServices {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w := &externalServices{T: t, key: jose.JSONWebKey{Key: private, KeyID: "1", Algorithm: "ES256"}}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(out http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(out, `{"issuer":%q,"jwks_uri":%q}`, w.URL, w.URL+"/keys")
	})
	mux.HandleFunc("/keys", func(out http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(out).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{w.key.Public()}})
	})
	mux.HandleFunc("/tokens", func(out http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		known := strings.Contains(string(body), `"token":"hooked"`)
		fmt.Fprintf(out, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":%t,"user":{"username":"hugo"}}}`, known)
	})
	mux.HandleFunc("/access", func(out http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		allowed := strings.Contains(string(body), `"resource":"configmaps"`) && strings.Contains(string(body), `"user":"hugo"`)
		fmt.Fprintf(out, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":%t,"reason":"the hook says so"}}`, allowed)
	})
	mux.HandleFunc("/events", func(_ http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		_, _ = io.Copy(&w.events, r.Body)
	})
	mux.HandleFunc("/moved/", func(out http.ResponseWriter, r *http.Request) { // 307 keeps method and body
		http.Redirect(out, r, w.URL+strings.Replace(r.URL.Path, "/moved/", "/redirected/", 1), http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/echo/", func(out http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case strings.Contains(string(body), "mark-garbage"):
			fmt.Fprintf(out, "{%s", body)
		case strings.Contains(string(body), "mark-kind"):
			fmt.Fprintf(out, `{"kind":%q}`, body)
		default:
			out.WriteHeader(http.StatusForbidden)
			_, _ = out.Write(body)
		}
	})
	mux.HandleFunc("/redirected/", func(out http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(&w.redirected, "%s %s\n", r.URL.Path, body)
		switch r.URL.Path {
		case "/redirected/tokens":
			fmt.Fprint(out, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{"authenticated":true,"user":{"username":"eve","groups":["system:masters"]}}}`)
		case "/redirected/access":
			fmt.Fprint(out, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true}}`)
		}
	})
	w.Server = httptest.NewTLSServer(mux)
	t.Cleanup(w.Close)
	return w
}

func (w *externalServices) file(name, text string) string {
	w.Helper()
	path := filepath.Join(w.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
	return path
}

func (w *externalServices) caPEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw}))
}

// webhookKubeconfig writes the kubeconfig of the webhook at a path, and returns its file.
func (w *externalServices) webhookKubeconfig(path string) string {
	w.Helper()
	ca := w.file("ca.pem", w.caPEM())
	return w.file("hook.yaml", "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: '"+w.URL+path+"', certificate-authority: "+ca+"}}]\n")
}

// token returns a token of the issuer with these claims.
func (w *externalServices) token(claims string) string {
	w.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: w.key}, nil)
	if err != nil {
		w.Fatal(err)
	}
	signed, err := signer.Sign(fmt.Appendf(nil, `{"iss":%q,"aud":"proa","exp":%d,%s}`, w.URL, time.Now().Add(time.Hour).Unix(), claims))
	if err != nil {
		w.Fatal(err)
	}
	out, err := signed.CompactSerialize()
	if err != nil {
		w.Fatal(err)
	}
	return out
}

// getWithToken reads a path with a bearer token, and returns the status code and the message of the Status.
func getWithToken(t *testing.T, c *proatest.Cluster, token, path string) string {
	t.Helper()
	config := &rest.Config{Host: c.Config.Host, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: c.Config.CAData}}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var st struct{ Message string }
	_ = json.Unmarshal(body, &st)
	return strings.TrimSpace(fmt.Sprint(res.StatusCode, " ", st.Message))
}

// TestExternalAuthenticationAndAuthorization authenticates users with an OpenID Connect issuer, a token file and a webhook, and
// authorizes them with a webhook.
func TestExternalAuthenticationAndAuthorization(t *testing.T) {
	w := newExternalServices(t)
	c := proatest.Start(t, proatest.Memory(), func(c *run.Config) {
		c.Identity.Config = w.file("issuers.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: "+w.URL+
			"\n    audiences: [proa]\n    certificateAuthority: |\n      "+strings.ReplaceAll(strings.TrimSpace(w.caPEM()), "\n",
			"\n      ")+
			"\n  claimMappings:\n    username: {expression: 'claims.name.lowerAscii()'}\n    groups: {claim: groups, prefix: ''}\nanonymous: {enabled: true, conditions: [{path: /livez}]}\n")
		c.Identity.TokenFile = w.file("tokens.csv", "listed,lisa,1,\"readers,others\"\n")
		c.Identity.Hook, c.Identity.HookVersion = w.webhookKubeconfig("/tokens"), "v1"
		c.Permission.Modes, c.Permission.Hook.Kubeconfig, c.Permission.Hook.Version = []string{"Node", "RBAC",
			"Webhook"}, w.webhookKubeconfig("/access"), "v1"
		c.AuditHook.Config = w.webhookKubeconfig("/events")
	})
	const configMapsPath = "/api/v1/namespaces/default/configmaps"
	for _, test := range []struct{ token, path, want string }{
		{w.token(`"name":"Ann"`), configMapsPath, `403 configmaps is forbidden: User "ann" cannot list resource "configmaps" in API group "" in the namespace "default": default: the hook says so`},
		{w.token(`"name":"Ann","groups":["system:masters"]`), configMapsPath, "200"},
		{w.token(`"groups":[]`), configMapsPath, "401 Unauthorized"},
		{w.token(`"name":"Ann"`) + "x", configMapsPath, "401 Unauthorized"},
		{"listed", configMapsPath, `403 configmaps is forbidden: User "lisa" cannot list resource "configmaps" in API group "" in the namespace "default": default: the hook says so`},
		{"hooked", configMapsPath, "200"},
		{"hooked", "/api/v1/namespaces/default/secrets", `403 secrets is forbidden: User "hugo" cannot list resource "secrets" in API group "" in the namespace "default": default: the hook says so`},
		{"unknown", configMapsPath, "401 Unauthorized"},
		{"", "/livez", "200"},
		{"", "/version", "401 Unauthorized"},
	} {
		if got := getWithToken(t, c, test.token, test.path); got != test.want {
			t.Errorf("%.20s asks for %s: got %s, want %s", test.token, test.path, got, test.want)
		}
	}
	c.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, want := range []string{`"kind":"EventList"`, `"username":"lisa","uid":"1","groups":["readers","others","system:authenticated"]`, `"username":"hugo"`} {
		if !strings.Contains(w.events.String(), want) {
			t.Errorf("the audit webhook did not get %s", want)
		}
	}
}

// TestWebhookRedirectsAreNotFollowed has the authentication, authorization and audit webhooks answer each request with a redirect
// that keeps the body, and checks that no redirect is followed: its target gets no token or audit event, and decides nothing.
func TestWebhookRedirectsAreNotFollowed(t *testing.T) {
	w := newExternalServices(t)
	c := proatest.Start(t, proatest.Memory(), func(c *run.Config) {
		c.Identity.TokenFile = w.file("tokens.csv", "listed,lisa,1,\"readers,others\"\n")
		c.Identity.Hook, c.Identity.HookVersion = w.webhookKubeconfig("/moved/tokens"), "v1"
		c.Permission.Modes, c.Permission.Hook.Kubeconfig, c.Permission.Hook.Version = []string{"Node", "RBAC",
			"Webhook"}, w.webhookKubeconfig("/moved/access"), "v1"
		c.AuditHook.Config = w.webhookKubeconfig("/moved/events")
		c.AuditHook.Retry = time.Millisecond
	})
	const configMapsPath = "/api/v1/namespaces/default/configmaps"
	for token, want := range map[string]string{"a-users-token": "401", "listed": "500"} {
		if got := getWithToken(t, c, token, configMapsPath); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", token, got, want)
		}
	}
	c.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.redirected.Len() > 0 {
		t.Errorf("a redirect was followed: %.500s", w.redirected.String())
	}
}
