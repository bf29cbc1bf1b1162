package authn

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/server/expirycache"
)

const appUser = "system:serviceaccount:ns:app[system:serviceaccounts system:serviceaccounts:ns system:authenticated] uid=sa-uid"

// token issues a token for ns/app.
func (w *authnTest) token(t testing.TB, r IssueRequest) string {
	t.Helper()
	r.ServiceAccount = w.objects["serviceaccounts/ns/app"].(*corev1.ServiceAccount)
	issued, err := w.Issue(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return issued.Token
}

func (w *authnTest) pod() *corev1.Pod       { return w.objects["pods/ns/web"].(*corev1.Pod) }
func (w *authnTest) secret() *corev1.Secret { return w.objects["secrets/ns/sec"].(*corev1.Secret) }
func (w *authnTest) node() *corev1.Node     { return w.objects["nodes//n1"].(*corev1.Node) }

// forge signs any claims with any key, as an attacker would.
func forge(t testing.TB, key crypto.Signer, kid string, claims map[string]any) string {
	t.Helper()
	alg := jose.ES256
	if k, ok := key.(*ecdsa.PrivateKey); !ok {
		alg = jose.RS256
	} else if k.Curve == elliptic.P384() {
		alg = jose.ES384
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func payload(t testing.TB, token string) map[string]any {
	t.Helper()
	data, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTokenLifecycle(t *testing.T) {
	for _, tt := range []struct {
		name string
		bind func(*authnTest) IssueRequest
		// change happens after the token was used once, so that it is in the cache.
		change func(*authnTest)
		want   string // error, or "" when the token still works
	}{
		{"nothing happens", nil, func(w *authnTest) {}, ""},
		{"within the leeway", nil, func(w *authnTest) { w.now = w.now.Add(time.Hour + 30*time.Second) }, ""},
		{"expired", nil, func(w *authnTest) { w.now = w.now.Add(time.Hour + 2*time.Minute) }, "service account token has expired"},
		{"clock went back", nil, func(w *authnTest) { w.now = w.now.Add(-2 * time.Minute) }, "service account token is not valid yet"},
		{"service account gone", nil, func(w *authnTest) { delete(w.objects, "serviceaccounts/ns/app") },
			`serviceaccounts "app" not found`},
		{"service account replaced", nil, func(w *authnTest) {
			w.objects["serviceaccounts/ns/app"] = &corev1.ServiceAccount{ObjectMeta: meta("ns", "app", "other")}
		}, "service account UID (other) does not match claim (sa-uid)"},
		{"service account being deleted", nil, func(w *authnTest) {
			sa := &corev1.ServiceAccount{ObjectMeta: meta("ns", "app", "sa-uid")}
			sa.DeletionTimestamp = new(metav1.NewTime(w.now.Add(-2 * time.Minute)))
			w.objects["serviceaccounts/ns/app"] = sa
		}, "service account ns/app has been deleted"},
		{"service account deleted just now", nil, func(w *authnTest) {
			sa := &corev1.ServiceAccount{ObjectMeta: meta("ns", "app", "sa-uid")}
			sa.DeletionTimestamp = new(metav1.NewTime(w.now))
			w.objects["serviceaccounts/ns/app"] = sa
		}, ""},
		{"pod gone", podBound, func(w *authnTest) { delete(w.objects, "pods/ns/web") }, "service account token has been invalidated"},
		{"pod replaced", podBound, func(w *authnTest) { w.objects["pods/ns/web"] = &corev1.Pod{ObjectMeta: meta("ns", "web", "new")} },
			"pod UID (new) does not match service account pod ref claim (pod-uid)"},
		{"pod terminated long ago", podBound, func(w *authnTest) {
			pod := &corev1.Pod{ObjectMeta: meta("ns", "web", "pod-uid")}
			pod.DeletionTimestamp = new(metav1.NewTime(w.now.Add(-61 * time.Second)))
			w.objects["pods/ns/web"] = pod
		}, "service account token has been invalidated"},
		{"node of the pod gone", podBound, func(w *authnTest) { delete(w.objects, "nodes//n1") }, ""},
		{"secret gone", secretBound, func(w *authnTest) { delete(w.objects, "secrets/ns/sec") },
			"service account token has been invalidated"},
		{"secret replaced", secretBound,
			func(w *authnTest) { w.objects["secrets/ns/sec"] = &corev1.Secret{ObjectMeta: meta("ns", "sec", "new")} },
			"secret UID (new) does not match service account secret ref claim (secret-uid)"},
		{"node gone", nodeBound, func(w *authnTest) { delete(w.objects, "nodes//n1") }, "service account token has been invalidated"},
		{"node replaced", nodeBound, func(w *authnTest) { w.objects["nodes//n1"] = &corev1.Node{ObjectMeta: meta("", "n1", "new")} },
			"node UID (new) does not match service account node ref claim (node-uid)"},
		{"keys changed", nil, func(w *authnTest) {
			if err := w.SetKeys(newKey(t, elliptic.P256())); err != nil {
				t.Fatal(err)
			}
		}, "invalid signature, no keys found"},
		{"keys gone", nil, func(w *authnTest) { _ = w.SetKeys(nil) }, "invalid bearer token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newAuthnTest(t)
			var r IssueRequest
			if tt.bind != nil {
				r = tt.bind(w)
			}
			token := w.token(t, r)
			expect(t, w, bearer(token), appUser)
			tt.change(w)
			if tt.want == "" {
				expect(t, w, bearer(token), appUser)
			} else {
				expectRefused(t, w, bearer(token), tt.want)
			}
		})
	}
}

func podBound(w *authnTest) IssueRequest    { return IssueRequest{Pod: w.pod(), Node: w.node()} }
func secretBound(w *authnTest) IssueRequest { return IssueRequest{Secret: w.secret()} }
func nodeBound(w *authnTest) IssueRequest   { return IssueRequest{Node: w.node()} }

func TestForgedTokens(t *testing.T) {
	serverKey, old := newKey(t, elliptic.P256()), newKey(t, elliptic.P384())
	w := newAuthnTest(t, func(c *Config) {
		c.SigningKey, c.VerifyKeys = serverKey, []crypto.PublicKey{old.Public(), serverKey.Public()}
	})
	ownID, oldID := w.keys.Load().public[0].KeyID, w.keys.Load().public[1].KeyID
	good := payload(t, w.token(t, IssueRequest{}))
	with := func(key string, value any) map[string]any {
		out := map[string]any{}
		for k, v := range good {
			out[k] = v
		}
		out[key] = value
		return out
	}
	unsigned := func(alg string) string {
		head := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"` + alg + `","kid":"` + ownID + `"}`))
		body, _ := json.Marshal(good)
		return head + "." + base64.RawURLEncoding.EncodeToString(body) + "."
	}
	hmac := func() string {
		der := w.JWKS()
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.HS256, Key: jose.JSONWebKey{Key: der, KeyID: ownID}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		token, _ := jwt.Signed(signer).Claims(good).Serialize()
		return token
	}
	tampered := func() string {
		parts := strings.Split(w.token(t, IssueRequest{}), ".")
		body, _ := json.Marshal(with("sub", "system:serviceaccount:kube-system:admin"))
		return parts[0] + "." + base64.RawURLEncoding.EncodeToString(body) + "." + parts[2]
	}
	for _, tt := range []struct{ name, token, want string }{
		{"good", forge(t, serverKey, ownID, good), ""},
		{"good without key ID", forge(t, serverKey, "", good), ""},
		{"good with the former key", forge(t, old, oldID, good), ""},
		{"good with the former key without ID", forge(t, old, "", good), ""},
		{"another key", forge(t, newKey(t, elliptic.P256()), ownID, good), "error in cryptographic primitive"},
		{"another key without ID", forge(t, newKey(t, elliptic.P256()), "", good), "error in cryptographic primitive"},
		{"the former key under the ID of the new", forge(t, old, ownID, good), "error in cryptographic primitive"},
		{"unknown key ID", forge(t, serverKey, "unknown", good), "invalid signature, no keys found"},
		{"alg none", unsigned("none"), "invalid bearer token"},
		{"alg None", unsigned("None"), "invalid bearer token"},
		{"alg empty", unsigned(""), "invalid bearer token"},
		{"no signature", unsigned("ES256"), "error in cryptographic primitive"},
		{"public key as HMAC secret", hmac(), "invalid bearer token"},
		{"tampered", tampered(), "error in cryptographic primitive"},
		{"another issuer", forge(t, serverKey, ownID, with("iss", "https://elsewhere")), "invalid bearer token"},
		{"no issuer", forge(t, serverKey, ownID, with("iss", "")), "invalid bearer token"},
		{"issuer of another type", forge(t, serverKey, ownID, with("iss", 1)), "invalid bearer token"},
		{"another audience", forge(t, serverKey, ownID, with("aud", []string{"vault"})),
			`token audiences ["vault"] is invalid for the target audiences ["` + testIssuer + `"]`},
		{"not yet valid", forge(t, serverKey, ownID, with("nbf", w.now.Add(2*time.Minute).Unix())), "not valid yet"},
		{"issued in the future", forge(t, serverKey, ownID, with("iat", w.now.Add(2*time.Minute).Unix())), "issued in the future"},
		{"expiry of another type", forge(t, serverKey, ownID, with("exp", "never")), "expected number value"},
		{"claims of another type", forge(t, serverKey, ownID, with("kubernetes.io", "x")), "cannot unmarshal"},
		{"no claims", forge(t, serverKey, ownID, with("kubernetes.io", map[string]any{})), `serviceaccounts "" not found`},
		{"webhook bound", forge(t, serverKey, ownID, with("kubernetes.io", map[string]any{
			"namespace": "ns", "serviceaccount": ref{"app", "sa-uid"}, "validatingwebhookconfiguration": ref{"w", "u"},
		})), "token is webhook bound"},
		{"JSON serialization", `{"payload":"e30","signatures":[]}`, "invalid bearer token"},
		{"two parts", "e30.e30", "invalid bearer token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want == "" {
				expect(t, w, bearer(tt.token), appUser)
			} else {
				expectRefused(t, w, bearer(tt.token), tt.want)
			}
		})
	}
}

func TestTokenIdentity(t *testing.T) {
	w := newAuthnTest(t)
	token := w.token(t, podBound(w))
	jti := payload(t, token)["jti"].(string)
	u := expect(t, w, bearer(token), appUser)
	want := map[string][]string{
		"authentication.kubernetes.io/pod-name":      {"web"},
		"authentication.kubernetes.io/pod-uid":       {"pod-uid"},
		"authentication.kubernetes.io/node-name":     {"n1"},
		"authentication.kubernetes.io/node-uid":      {"node-uid"},
		"authentication.kubernetes.io/credential-id": {"JTI=" + jti},
	}
	if got := u.GetExtra(); !reflect.DeepEqual(got, want) {
		t.Errorf("extra\n got %v\nwant %v", got, want)
	}
}

func TestRSAKeys(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	w := newAuthnTest(t, func(c *Config) { c.SigningKey = key })
	expect(t, w, bearer(w.token(t, IssueRequest{})), appUser)
	if !strings.Contains(string(w.OpenIDConfig()), `["RS256"]`) {
		t.Errorf("%s", w.OpenIDConfig())
	}
}

func TestWebSocketToken(t *testing.T) {
	w := newAuthnTest(t)
	encoded := bearerProtocolPrefix + base64.RawURLEncoding.EncodeToString([]byte(w.token(t, IssueRequest{})))
	for _, tt := range []struct {
		name      string
		protocols []string
		want      string // error, or what is left of the header after a "="
	}{
		{"token and protocol", []string{encoded + ", v5.channel.k8s.io"}, "=v5.channel.k8s.io"},
		{"several lines", []string{"a", encoded, "b,c"}, "=a,b,c"},
		{"token alone", []string{encoded}, "missing additional subprotocol"},
		{"two tokens", []string{encoded, encoded, "a"}, "multiple base64.bearer.authorization tokens specified"},
		{"bad encoding", []string{bearerProtocolPrefix + "*", "a"}, "invalid base64.bearer.authorization token encoding"},
		{"bad text", []string{bearerProtocolPrefix + "_w", "a"}, "invalid base64.bearer.authorization token"},
		{"bad token", []string{bearerProtocolPrefix + "eA", "a"}, "invalid bearer token"},
		{"no token", []string{"a"}, ErrNoCredentials.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := request("/api")
			r.Header = http.Header{"Upgrade": {"WebSocket"}, "Connection": {"keep-alive, Upgrade"}, protocolHeader: tt.protocols}
			left, ok := strings.CutPrefix(tt.want, "=")
			if !ok {
				expectRefused(t, w, r, tt.want)
				return
			}
			expect(t, w, r, appUser)
			if got := r.Header.Get(protocolHeader); got != left {
				t.Errorf("protocols %q, want %q", got, left)
			}
		})
	}
	r := request("/api")
	r.Header = http.Header{protocolHeader: {encoded + ", a"}}
	expectRefused(t, w, r, ErrNoCredentials.Error())
}

func BenchmarkToken(b *testing.B) {
	w := newAuthnTest(b, func(c *Config) { c.Now = nil })
	token := w.token(b, podBound(w))
	for _, cached := range []bool{true, false} {
		b.Run(map[bool]string{true: "known", false: "new"}[cached], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !cached {
					w.keys.Load().tokens = expirycache.Cache[[sha256.Size]byte, *tokenRecord]{}
				}
				if _, err := w.Authenticator.token(context.Background(), token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func FuzzToken(f *testing.F) {
	w := newAuthnTest(f)
	token := w.token(f, IssueRequest{})
	f.Add(token)
	f.Add(strings.ToUpper(token))
	f.Add("e30.e30.e30")
	f.Add(`{"payload":"e30","protected":"e30","signature":""}`)
	f.Add("abcdef.0123456789abcdef")
	f.Add("eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMuY2x1c3Rlci5sb2NhbCJ9.")
	want, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[2])
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		who, err := w.Authenticator.token(context.Background(), s)
		if err != nil {
			return
		}
		// Encodings of one signature may differ in trailing bits and white space, the signature may not.
		parts := strings.Split(strings.Join(strings.Fields(s), ""), ".")
		if len(parts) == 3 {
			got, _ := base64.RawURLEncoding.DecodeString(parts[2])
			if string(got) == string(want) {
				return
			}
		}
		t.Errorf("%q was accepted as %s", s, show(who))
	})
}
