package issuer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// provider is an OpenID Connect provider.
type provider struct {
	*httptest.Server
	mu         sync.Mutex // guards what follows
	keys       []jose.JSONWebKey
	fetched    int
	issuerName string // its issuer name; empty for its address
	redirected string // the path that it redirects to one with the same content
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{}
	mux := http.NewServeMux()
	respond := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(v); err != nil {
			t.Error(err)
		}
	}
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		issuerName := p.issuerName
		if issuerName == "" {
			issuerName = p.URL
		}
		respond(w, map[string]string{"issuer": issuerName, "jwks_uri": p.URL + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.fetched++
		respond(w, jose.JSONWebKeySet{Keys: p.keys})
	})
	mux.HandleFunc("/elsewhere/", func(w http.ResponseWriter, r *http.Request) {
		http.StripPrefix("/elsewhere", mux).ServeHTTP(w, r)
	})
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		redirected := p.redirected
		p.mu.Unlock()
		if r.URL.Path == redirected {
			w.Header().Set("Location", "/elsewhere"+redirected)
			w.WriteHeader(http.StatusTemporaryRedirect)
			fmt.Fprint(w, "what an answer says")
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// key makes a key and publishes its public half.
func (p *provider) key(t *testing.T, id string) jose.JSONWebKey {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key := jose.JSONWebKey{Key: private, KeyID: id, Algorithm: "ES256", Use: "sig"}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = append(p.keys, key.Public())
	return key
}

// sign makes a token of claims; missing claims get valid values.
func (p *provider) sign(t *testing.T, key jose.JSONWebKey, claims string) string {
	t.Helper()
	all := map[string]any{"iss": p.URL, "aud": "me", "exp": time.Now().Add(time.Hour).Unix()}
	var given map[string]any
	if err := json.Unmarshal([]byte(claims), &given); err != nil {
		t.Fatal(err)
	}
	maps.Copy(all, given)
	payload, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// caCertificate returns the certificate of the provider, indented for a YAML file.
func (p *provider) caCertificate() string {
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}))
	return "    certificateAuthority: |\n      " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      ") + "\n"
}

// verifier returns a verifier that trusts a provider; rules is the rest of its entry in the file.
func (p *provider) verifier(t *testing.T, rules string) *Verifier {
	t.Helper()
	file := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: " + p.URL + "\n    audiences: [me]\n" + p.caCertificate() + rules
	c, err := Parse([]byte(file), nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, file)
	}
	v, err := New(c, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// show returns the result of a token as text.
func show(t *testing.T, v *Verifier, token string) string {
	t.Helper()
	who, _, ok, err := v.Verify(t.Context(), token, nil)
	switch {
	case err != nil:
		return "error: " + err.Error()
	case !ok:
		return "nobody"
	}
	out := fmt.Sprintf("%s uid=%q groups=%v", who.GetName(), who.GetUID(), who.GetGroups())
	for _, k := range slices.Sorted(maps.Keys(who.GetExtra())) {
		out += fmt.Sprintf(" %s=%v", k, who.GetExtra()[k])
	}
	return out
}

func TestClaims(t *testing.T) {
	p := newProvider(t)
	key := p.key(t, "one")
	const (
		plain   = "  claimMappings: {username: {claim: sub, prefix: 'x:'}, groups: {claim: groups, prefix: 'g:'}, uid: {claim: id}}\n"
		email   = "  claimMappings: {username: {claim: email, prefix: ''}}\n"
		express = "  claimMappings:\n    username: {expression: 'claims.given + \"@\" + claims.where.name'}\n    groups: {expression: 'claims.roles.split(\",\")'}\n" +
			"    uid: {expression: claims.id}\n    extra: [{key: example.com/team, valueExpression: 'claims.example__dot__com.team'}]\n" +
			"  claimValidationRules: [{expression: 'claims.level > 2', message: the level is too low}]\n" +
			"  userValidationRules: [{expression: '!user.username.startsWith(\"system:\")', message: not a system user}]\n"
		required = "  claimMappings: {username: {claim: sub, prefix: ''}}\n  claimValidationRules: [{claim: hd, requiredValue: example.com}]\n"
	)
	for _, test := range []struct{ name, rules, claims, want string }{
		{"plain", plain, `{"sub":"ann","groups":["a","b"],"id":"7","jti":"t"}`, `x:ann uid="7" groups=[g:a g:b] authentication.kubernetes.io/credential-id=[JTI=t]`},
		{"one group", plain, `{"sub":"ann","groups":"a","id":"7"}`, `x:ann uid="7" groups=[g:a]`},
		{"no groups", plain, `{"sub":"ann","id":"7"}`, `x:ann uid="7" groups=[]`},
		{"no uid", plain, `{"sub":"ann"}`, `error: oidc: parse uid claim "id": claim not present`},
		{"an invalid name", plain, `{"sub":5,"id":"7"}`,
			`error: oidc: parse username claims "sub": json: cannot unmarshal number into Go value of type string`},
		{"invalid groups", plain, `{"sub":"a","id":"7","groups":{"a":1}}`,
			`error: oidc: parse groups claim "groups": json: cannot unmarshal object into Go value of type string`},
		{"email", email, `{"email":"a@b","email_verified":true}`, `a@b uid="" groups=[]`},
		{"email not verified", email, `{"email":"a@b","email_verified":false}`, `error: oidc: email not verified`},
		{"expressions", express, `{"given":"ann","where":{"name":"here"},"roles":"a,b,","id":"7","example.com":{"team":["x",""]},"level":3}`, `ann@here uid="7" groups=[a b] example.com/team=[x]`},
		{"a rule for claims", express, `{"given":"ann","where":{"name":"here"},"roles":"","id":"7","example.com":{"team":"x"},"level":2}`,
			`error: oidc: error evaluating claim validation expression: validation expression 'claims.level > 2' failed: the level is too low`},
		{"a rule for users", express, `{"given":"system:x","where":{"name":"here"},"roles":"","id":"7","example.com":{"team":"x"},"level":3}`,
			`error: oidc: error evaluating user info validation rule: validation expression '!user.username.startsWith("system:")' failed: not a system user`},
		{"an expression without its claim", express, `{}`, `error: oidc: error evaluating username claim expression: expression 'claims.given + "@" + claims.where.name' resulted in error: no such key: given`},
		{"a required claim", required, `{"sub":"a","hd":"example.com"}`, `a uid="" groups=[]`},
		{"without it", required, `{"sub":"a"}`, `error: oidc: required claim hd not present in ID token`},
		{"with another", required, `{"sub":"a","hd":"other"}`, `error: oidc: required claim hd value does not match. Got = other, want = example.com`},
		{"another issuer", plain, `{"iss":"https://other.example.com"}`, `nobody`},
		{"another audience", plain, `{"aud":["you","them"]}`, `error: oidc: verify token: oidc: expected audience in ["me"] got ["you" "them"]`},
		{"one audience of several", plain, `{"aud":["you","me"],"sub":"a","id":"7"}`, `x:a uid="7" groups=[]`},
		{"over", plain, `{"exp":1000}`,
			`error: oidc: verify token: oidc: token is expired (Token Expiry: ` + time.Unix(1000, 0).String() + `)`},
		{"without an expiry", plain, `{"exp":null,"sub":"a","id":"7"}`,
			`error: oidc: verify token: oidc: token is expired (Token Expiry: ` + time.Unix(0, 0).String() + `)`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := show(t, p.verifier(t, test.rules), p.sign(t, key, test.claims)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestKeysAreFetchedWhenNeeded(t *testing.T) {
	p := newProvider(t)
	v := p.verifier(t, "  claimMappings: {username: {claim: sub, prefix: ''}}\n")
	now := time.Now()
	v.issuers[0].keys.now = func() time.Time { return now }
	first := p.key(t, "one")
	for range 3 {
		if got := show(t, v, p.sign(t, first, `{"sub":"ann"}`)); !strings.HasPrefix(got, "ann ") {
			t.Fatal(got)
		}
	}
	if p.fetched != 1 {
		t.Errorf("the keys were fetched %d times for one", p.fetched)
	}
	second := p.key(t, "two")
	token := p.sign(t, second, `{"sub":"ann"}`)
	const refused = "error: oidc: verify token: failed to verify signature: failed to verify id token signature"
	if got := show(t, v, token); got != refused || p.fetched != 1 {
		t.Errorf("a new key at once, fetched %d times: %s", p.fetched, got)
	}
	now = now.Add(minFetchInterval)
	if got := show(t, v, token); !strings.HasPrefix(got, "ann ") || p.fetched != 2 {
		t.Errorf("a new key, fetched %d times: %s", p.fetched, got)
	}
	// A key that the provider does not have, with the ID of one that it has.
	forged := newProvider(t).key(t, "one")
	now = now.Add(minFetchInterval)
	if got := show(t, v, p.sign(t, forged, `{"sub":"ann"}`)); got != refused {
		t.Errorf("forged: %s", got)
	}
	if got := show(t, v, strings.TrimSuffix(token, token[strings.LastIndex(token, "."):])+"."); !strings.HasPrefix(got,
		"error: oidc: verify token: ") {
		t.Errorf("unsigned: %s", got)
	}
	for _, bad := range []string{"", "a.b", "a.b.c", "..", strings.Repeat(".", 5)} {
		if got := show(t, v, bad); got != "nobody" {
			t.Errorf("%q: %s", bad, got)
		}
	}
}

func TestFaultyIssuers(t *testing.T) {
	p := newProvider(t)
	rules := "  claimMappings: {username: {claim: sub, prefix: ''}}\n"
	key := p.key(t, "one")
	token := p.sign(t, key, `{"sub":"ann"}`)
	p.issuerName = "https://other.example.com"
	v := p.verifier(t, rules)
	if got := show(t, v, token); !strings.Contains(got,
		`issuer did not match the issuer returned by provider, expected "`+p.URL+`" got "https://other.example.com"`) {
		t.Errorf("under another name: %s", got)
	}
	p.issuerName = ""
	v = p.verifier(t, rules)
	p.Close()
	if got := show(t, v, token); !strings.HasPrefix(got, "error: oidc: verify token: ") {
		t.Errorf("away: %s", got)
	}
}

// TestIssuerRedirectsAreNotFollowed checks that neither the metadata of an issuer nor its keys are read from where a redirect
// leads.
func TestIssuerRedirectsAreNotFollowed(t *testing.T) {
	for redirected, want := range map[string]string{
		"": "ann", "/.well-known/openid-configuration": "answered 307 Temporary Redirect; redirects are not followed",
		"/keys": "answered 307 Temporary Redirect; redirects are not followed",
	} {
		p := newProvider(t)
		key := p.key(t, "one")
		p.redirected = redirected
		got := show(t, p.verifier(t, "  claimMappings: {username: {claim: name, prefix: ''}}\n"), p.sign(t, key, `{"name": "ann"}`))
		if !strings.Contains(got, want) || strings.Contains(got, "what an answer says") {
			t.Errorf("%q is moved: %s", redirected, got)
		}
	}
}

func TestInvalidConfigs(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
	for file, want := range map[string]string{
		"":                 "empty config data",
		"kind: Pod":        "Object 'apiVersion' is missing",
		head + "jvt: []":   `unknown field "jvt"`,
		head + "jwt: [{}]": "jwt[0].issuer.url: Required value",
		head + "jwt: [{issuer: {url: 'http://a', audiences: [x]}, claimMappings: {username: {claim: sub, prefix: ''}}}]":                               `jwt[0].issuer.url: Invalid value: "http://a": URL scheme must be https`,
		head + "jwt: [{issuer: {url: 'https://own', audiences: [x]}, claimMappings: {username: {claim: sub, prefix: ''}}}]":                            `jwt[0].issuer.url: Invalid value: "https://own": URL must not overlap with disallowed issuers`,
		head + "jwt: [{issuer: {url: 'https://a', audiences: [x]}, claimMappings: {username: {expression: 'claims.'}}}]":                               "compilation failed",
		head + "jwt: [{issuer: {url: 'https://a', audiences: [x], egressSelectorType: cluster}, claimMappings: {username: {claim: sub, prefix: ''}}}]": "proa has no egress selectors",
	} {
		if _, err := Parse([]byte(file), []string{"https://own"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s: got error %v, want %s", file, err, want)
		}
	}
	for want, flags := range map[string]Flags{
		"oidc-issuer-url and oidc-client-id must be specified together": {URL: "https://a"},
		`oidc: unsupported signing alg: "HS256"`: {URL: "https://a", ClientID: "x", UsernameClaim: "sub",
			Algorithms: []string{"HS256"}},
		`"a" is not CLAIM=VALUE`: {URL: "https://a", ClientID: "x", UsernameClaim: "sub",
			Required: []string{"a"}},
		"URL scheme must be https": {URL: "http://a", ClientID: "x", UsernameClaim: "sub"},
	} {
		if _, err := FromFlags(flags, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got error %v, want %s", flags, err, want)
		}
	}
}

func TestFlags(t *testing.T) {
	p := newProvider(t)
	key := p.key(t, "one")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	for want, f := range map[string]Flags{
		p.URL + `#ann uid="" groups=[a]`: {UsernameClaim: "sub", GroupsClaim: "groups"},
		`ann uid="" groups=[g:a]`:        {UsernameClaim: "sub", UsernamePrefix: "-", GroupsClaim: "groups", GroupsPrefix: "g:"},
		`a@b uid="" groups=[]`:           {UsernameClaim: "email", Required: []string{"hd=x=y"}},
	} {
		f.URL, f.ClientID, f.CA, f.Algorithms = p.URL, "me", ca, []string{"ES256"}
		c, err := FromFlags(f, nil)
		if err != nil {
			t.Fatal(err)
		}
		v, err := New(c, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := show(t, v, p.sign(t, key, `{"sub":"ann","email":"a@b","groups":["a"],"hd":"x=y"}`)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add("a.eyJpc3MiOiJodHRwczovL2EifQ.b")
	f.Fuzz(func(t *testing.T, token string) {
		k := &keys{lastFetch: time.Now(), now: time.Now, turn: make(chan struct{}, 1)}
		s := &source{trusted: trusted{algorithms: algorithms()}, keys: k}
		s.Issuer.URL = "https://a"
		v := &Verifier{issuers: []*source{s}, now: time.Now}
		if who, _, ok, _ := v.Verify(t.Context(), token, nil); ok {
			t.Errorf("%q is %v", token, who)
		}
	})
}

// FuzzConfig parses arbitrary configurations: an accepted one has at least one issuer, and never that of this cluster.
func FuzzConfig(f *testing.F) {
	f.Add([]byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer: {url: 'https://a', audiences: [b]}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n"))
	f.Add([]byte(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthenticationConfiguration","jwt":[{"issuer":{"url":"https://own","audiences":["b"]},"claimMappings":{"username":{"expression":"claims.sub"}}}]}`))
	f.Add([]byte("jwt: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse(text, []string{"https://own"})
		if err != nil {
			return
		}
		for _, i := range c.trusted {
			if i.Issuer.URL == "https://own" {
				t.Errorf("accepted with this cluster's own issuer: %s", text)
			}
		}
	})
}

// TestHostileIssuers checks what an issuer costs that hangs, answers too much, or has unusual keys: users whose keys are known do not
// wait, and a client that disconnects causes no further fetch.
func TestHostileIssuers(t *testing.T) {
	const rules = "  claimMappings: {username: {claim: sub, prefix: ''}}\n"
	p := newProvider(t)
	known := p.key(t, "known")
	v := p.verifier(t, rules)
	now := time.Now()
	keys := v.issuers[0].keys
	keys.now = func() time.Time { return now }
	token := p.sign(t, known, `{"sub":"ann"}`)
	if got := show(t, v, token); !strings.HasPrefix(got, "ann ") {
		t.Fatal(got)
	}
	unknown := p.sign(t, newProvider(t).key(t, "unknown"), `{"sub":"eve"}`)
	now = now.Add(minFetchInterval)
	keys.turn <- struct{}{} // a request waits for the issuer
	if got := show(t, v, token); !strings.HasPrefix(got, "ann ") {
		t.Errorf("a known key while the issuer hangs: %s", got)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, _, _, err := v.Verify(gone, unknown, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that does not wait: %v", err)
	}
	<-keys.turn
	for range 3 {
		_, _, _, _ = v.Verify(gone, unknown, nil) // either it fetches or it leaves
		_, _ = keys.fetch(gone)
	}
	if _, err := keys.fetch(t.Context()); err != nil || p.fetched != 2 {
		t.Errorf("clients that disconnect made the server fetch %d times: %v", p.fetched-1, err)
	}

	large, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	large.N.Lsh(large.N, 1<<16)
	for what, test := range map[string]struct {
		keys []jose.JSONWebKey
		want string
	}{
		"too many keys":      {slices.Repeat(p.keys, maxKeys+1), fmt.Sprintf("/keys has %d keys, more than %d", maxKeys+1, maxKeys)},
		"a document of 2 MB": {slices.Repeat(p.keys, 10_000), "fetching keys failed to decode"},
		"an enormous key":    {[]jose.JSONWebKey{{Key: &large.PublicKey, KeyID: "large"}}, "modulus too large"},
	} {
		p.mu.Lock()
		p.keys = test.keys
		p.mu.Unlock()
		now = now.Add(minFetchInterval)
		got := ""
		if known, err := keys.fetch(t.Context()); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprintf("%d keys", len(known))
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("%s: %.200s, want %s", what, got, test.want)
		}
	}
}
