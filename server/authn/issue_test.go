package authn

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestClaims(t *testing.T) {
	w := newAuthnTest(t)
	now := float64(w.now.Unix())
	us := []any{testIssuer}
	sa := map[string]any{"name": "app", "uid": "sa-uid"}
	pod, node, secret := map[string]any{"name": "web", "uid": "pod-uid"}, map[string]any{"name": "n1",
		"uid": "node-uid"}, map[string]any{"name": "sec", "uid": "secret-uid"}
	for _, tt := range []struct {
		name string
		req  IssueRequest
		exp  float64
		aud  []any
		kube map[string]any
	}{
		{"plain", IssueRequest{}, 3600, us, map[string]any{"namespace": "ns", "serviceaccount": sa}},
		{"for others", IssueRequest{Audiences: []string{"a", "b"}, ExpirationSeconds: 600}, 600, []any{"a", "b"},
			map[string]any{"namespace": "ns", "serviceaccount": sa}},
		{"pod", IssueRequest{Pod: w.pod(), Node: w.node(), ExpirationSeconds: 7200}, 7200, us,
			map[string]any{"namespace": "ns", "serviceaccount": sa, "pod": pod, "node": node}},
		{"secret", IssueRequest{Secret: w.secret()}, 3600, us, map[string]any{"namespace": "ns", "serviceaccount": sa, "secret": secret}},
		{"node", IssueRequest{Node: w.node()}, 3600, us, map[string]any{"namespace": "ns", "serviceaccount": sa, "node": node}},
		{"mounted", IssueRequest{Pod: w.pod(), ExpirationSeconds: 3607}, 365 * 24 * 3600, us,
			map[string]any{"namespace": "ns", "serviceaccount": sa, "pod": pod, "warnafter": now + 3607}},
		{"mounted for others", IssueRequest{Pod: w.pod(), ExpirationSeconds: 3607, Audiences: []string{testIssuer, "vault"}}, 3607,
			[]any{testIssuer, "vault"},
			map[string]any{"namespace": "ns", "serviceaccount": sa, "pod": pod}},
		{"not mounted", IssueRequest{ExpirationSeconds: 3607}, 3607, us, map[string]any{"namespace": "ns", "serviceaccount": sa}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := payload(t, w.token(t, tt.req))
			if id, _ := got["jti"].(string); len(id) != 36 {
				t.Errorf("jti %q", id)
			}
			delete(got, "jti")
			want := map[string]any{
				"iss": testIssuer, "sub": "system:serviceaccount:ns:app", "aud": tt.aud,
				"iat": now, "nbf": now, "exp": now + tt.exp, "kubernetes.io": tt.kube,
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("claims\n got %v\nwant %v", got, want)
			}
		})
	}
}

func TestTokenHeader(t *testing.T) {
	w := newAuthnTest(t)
	data, err := base64.RawURLEncoding.DecodeString(strings.Split(w.token(t, IssueRequest{}), ".")[0])
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"alg":"ES256","kid":"` + w.keys.Load().public[0].KeyID + `"}`; string(data) != want {
		t.Errorf("header %s, want %s", data, want)
	}
}

func TestStaleToken(t *testing.T) {
	w := newAuthnTest(t)
	token := w.token(t, IssueRequest{Pod: w.pod(), ExpirationSeconds: 3607})
	w.now = w.now.Add(2 * time.Hour)
	expect(t, w, bearer(token), appUser)
	if got := w.annotations["authentication.k8s.io/stale-token"]; got != "subject: system:serviceaccount:ns:app, seconds after warning threshold: 3593" {
		t.Errorf("annotation %q", got)
	}
}

func TestTokenRequest(t *testing.T) {
	ref := func(kind, name, uid string) func(*authenticationv1.TokenRequest) {
		return func(r *authenticationv1.TokenRequest) {
			r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name,
				UID: meta("", "", uid).UID}
		}
	}
	for _, tt := range []struct {
		name, account string
		change        func(*authenticationv1.TokenRequest)
		code          int32
		want          string
	}{
		{"empty", "app", func(*authenticationv1.TokenRequest) {}, 0, ""},
		{"pod", "app", ref("Pod", "web", "pod-uid"), 0, ""},
		{"pod without uid", "app", ref("Pod", "web", ""), 0, ""},
		{"secret", "app", ref("Secret", "sec", ""), 0, ""},
		{"node", "app", ref("Node", "n1", ""), 0, ""},
		{"no account", "nobody", func(*authenticationv1.TokenRequest) {}, 404, `serviceaccounts "nobody" not found`},
		{"another name", "app", func(r *authenticationv1.TokenRequest) { r.Name = "x" }, 422, `metadata.name: Invalid value: "x": must match the service account name if specified`},
		{"another namespace", "app", func(r *authenticationv1.TokenRequest) { r.Namespace = "x" }, 422,
			"must match the service account namespace if specified"},
		{"another uid", "app", func(r *authenticationv1.TokenRequest) { r.UID = "x" }, 409, "the UID in the token request (x) does not match the UID of the service account (sa-uid)"},
		{"short", "app", func(r *authenticationv1.TokenRequest) { r.Spec.ExpirationSeconds = new(int64(599)) }, 422,
			"spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes"},
		{"long", "app", func(r *authenticationv1.TokenRequest) { r.Spec.ExpirationSeconds = new(int64(1<<32 + 1)) }, 422,
			"may not specify a duration larger than 2^32 seconds"},
		{"pod gone", "app", ref("Pod", "gone", ""), 404, `pods "gone" not found`},
		{"pod replaced", "app", ref("Pod", "web", "old"), 409, "the UID in the bound object reference (old) does not match the UID in record. The object might have been deleted and then recreated"},
		{"pod of another account", "other", ref("Pod", "web", ""), 400, `cannot bind token for serviceaccount "other" to pod running with different serviceaccount name.`},
		{"config map", "app", ref("ConfigMap", "c", ""), 400, "cannot bind token to object of type /v1, Kind=ConfigMap"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newAuthnTest(t)
			w.objects["serviceaccounts/ns/other"] = &corev1.ServiceAccount{ObjectMeta: meta("ns", "other", "other-uid")}
			req := &authenticationv1.TokenRequest{}
			tt.change(req)
			got, err := w.TokenRequest(context.Background(), "ns", tt.account, req)
			if tt.code != 0 {
				status, ok := err.(apierrors.APIStatus)
				if !ok || status.Status().Code != tt.code || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("error %v, want %d %q", err, tt.code, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			out := got.Request
			if out.Name != "app" || out.Namespace != "ns" || out.UID != "sa-uid" ||
				!reflect.DeepEqual(out.Spec.Audiences, []string{testIssuer}) ||
				*out.Spec.ExpirationSeconds != 3600 || !out.Status.ExpirationTimestamp.Time.Equal(w.now.Add(time.Hour)) {
				t.Errorf("answer %+v", out)
			}
			if got.AuditKey != "authentication.kubernetes.io/issued-credential-id" || !strings.HasPrefix(got.AuditValue, "JTI=") {
				t.Errorf("audit %s=%s", got.AuditKey, got.AuditValue)
			}
			expect(t, w, bearer(out.Status.Token), appUser)
		})
	}
}

func TestPodOnDeletedNode(t *testing.T) {
	w := newAuthnTest(t)
	delete(w.objects, "nodes//n1")
	req := &authenticationv1.TokenRequest{}
	req.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "web"}
	got, err := w.TokenRequest(context.Background(), "ns", "app", req)
	if err != nil {
		t.Fatal(err)
	}
	kube := payload(t, got.Request.Status.Token)["kubernetes.io"].(map[string]any)
	if want := map[string]any{"name": "n1"}; !reflect.DeepEqual(kube["node"], want) {
		t.Errorf("node %v", kube["node"])
	}
}

func TestMaxExpiration(t *testing.T) {
	w := newAuthnTest(t, func(c *Config) { c.MaxExpiration = 30 * time.Minute })
	got, err := w.TokenRequest(context.Background(), "ns", "app", &authenticationv1.TokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if *got.Request.Spec.ExpirationSeconds != 1800 || got.Warning != "requested expiration of 3600 seconds shortened to 1800 seconds" {
		t.Errorf("%d %q", *got.Request.Spec.ExpirationSeconds, got.Warning)
	}
}

func TestReviewToken(t *testing.T) {
	w := newAuthnTest(t, func(c *Config) {
		c.Tokens = []TokenFunc{func(_ context.Context, token string, _ []string) (user.Info, []string, bool, error) {
			return &user.DefaultInfo{Name: "oidc:alice"}, nil, token == "from-elsewhere", nil
		}}
	})
	multi := w.token(t, IssueRequest{Audiences: []string{testIssuer, "vault"}})
	other := w.token(t, IssueRequest{Audiences: []string{"vault"}})
	for _, tt := range []struct {
		name, token string
		audiences   []string
		want        string // error, or the accepted audiences after a "="
	}{
		{"server's own", multi, nil, "=" + testIssuer},
		{"other audience", multi, []string{"vault"}, "=vault"},
		{"intersection in the requested order", multi, []string{"x", "vault", testIssuer}, "=vault " + testIssuer},
		{"for another audience only", other, nil,
			`[invalid bearer token, token audiences ["vault"] is invalid for the target audiences ["` + testIssuer + `"]]`},
		{"not in the list", other, []string{"a", "b"}, `[invalid bearer token, token audiences ["vault"] is invalid for the target audiences ["a" "b"]]`},
		{"further verifier", "from-elsewhere", nil, "=" + testIssuer},
		{"further verifier knows no audience", "from-elsewhere", []string{"vault"}, "invalid bearer token"},
		{"nonsense", "nonsense", nil, "invalid bearer token"},
		{"blank", " ", nil, "invalid bearer token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			who, accepted, ok, err := w.ReviewToken(context.Background(), tt.token, tt.audiences)
			if list, good := strings.CutPrefix(tt.want, "="); good {
				if !ok || err != nil || strings.Join(accepted, " ") != list {
					t.Fatalf("%v %v %v", accepted, ok, err)
				}
				if !strings.Contains(show(who), "system:authenticated]") {
					t.Error(show(who))
				}
				return
			}
			if ok || who != nil || err == nil || err.Error() != tt.want {
				t.Fatalf("%v %v, want %q", ok, err, tt.want)
			}
		})
	}
}

func TestDiscovery(t *testing.T) {
	w := newAuthnTest(t, func(c *Config) { c.JWKSURI = "https://192.0.2.1:6443/openid/v1/jwks" })
	get := func(serve http.HandlerFunc) *http.Response {
		rec := httptest.NewRecorder()
		serve(rec, httptest.NewRequest(http.MethodGet, "/", nil))
		return rec.Result()
	}
	resp := get(w.ServeOpenIDConfig)
	if h := resp.Header; h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "public, max-age=3600" {
		t.Errorf("headers %v", h)
	}
	want := `{"issuer":"` + testIssuer + `","jwks_uri":"https://192.0.2.1:6443/openid/v1/jwks","response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256"]}`
	if got := string(w.OpenIDConfig()); got != want {
		t.Errorf("configuration\n got %s\nwant %s", got, want)
	}
	resp = get(w.ServeJWKS)
	if h := resp.Header; h.Get("Content-Type") != "application/jwk-set+json" || h.Get("Cache-Control") != "public, max-age=3600" {
		t.Errorf("headers %v", h)
	}
	// A relying party verifies a token with nothing but the published keys.
	var set jose.JSONWebKeySet
	if err := json.NewDecoder(resp.Body).Decode(&set); err != nil {
		t.Fatal(err)
	}
	token, err := jwt.ParseSigned(w.token(t, IssueRequest{}), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	var claims jwt.Claims
	if err := token.Claims(set, &claims); err != nil || claims.Issuer != testIssuer {
		t.Errorf("%v %v", claims, err)
	}
	if key := set.Keys[0]; key.Use != "sig" || key.Algorithm != "ES256" || !key.IsPublic() {
		t.Errorf("key %+v", key)
	}
	if strings.Contains(string(w.JWKS()), `"d"`) {
		t.Error("the private key was published")
	}

	plain := newAuthnTest(t, func(c *Config) { c.Issuers = []string{"cluster"} })
	if resp := get(plain.ServeJWKS); resp.StatusCode != http.StatusNotFound {
		t.Errorf("issuer without URL: %d", resp.StatusCode)
	}
	if got := string(newAuthnTest(t).OpenIDConfig()); !strings.Contains(got, `"jwks_uri":"`+testIssuer+JWKSPath+`"`) {
		t.Error(got)
	}
}
