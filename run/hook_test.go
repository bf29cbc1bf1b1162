package run

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// write puts a text into a file of the test's.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const hookHead = "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"

func TestHook(t *testing.T) {
	var seen []string
	codes := []int{500, 429, 200}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		seen = append(seen, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization")+" "+string(body))
		w.WriteHeader(codes[min(len(seen), len(codes))-1])
		_, _ = io.WriteString(w, "answer")
	}))
	defer s.Close()
	token := write(t, "token", "secret\n")
	path := write(t, "hook.yaml", hookHead+"clusters: [{name: c, cluster: {server: '"+s.URL+"/ask'}}]\nusers: [{name: u, user: {tokenFile: "+token+"}}]\n")
	h, err := openHook(path, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := h.post(t.Context(), []byte("question"))
	if err != nil || string(answer) != "answer" {
		t.Errorf("got %q, %v", answer, err)
	}
	want := "POST /ask Bearer secret question"
	if got := strings.Join(seen, "|"); got != want+"|"+want+"|"+want {
		t.Errorf("asked %s", got)
	}
	codes, seen = []int{403}, nil
	if _, err := h.post(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "answered 403 Forbidden") || len(seen) != 1 {
		t.Errorf("a no was asked %d times: %v", len(seen), err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := h.post(ctx, nil); err == nil {
		t.Error("an answer for nobody")
	}
}

func TestHookMistakes(t *testing.T) {
	cluster := "clusters: [{name: c, cluster: {server: 'https://a'}}]\n"
	for text, want := range map[string]string{
		"a: [":                 "did not find expected",
		"kind: Config":         "there is no current-context",
		"current-context: z\n": `there is no context "z"`,
		hookHead:               `there is no cluster "c"`,
		hookHead + cluster:     `there is no user "u"`,
		hookHead + "clusters: [{name: c, cluster: {server: a}}]\nusers: [{name: u, user: {}}]\n":                                            `"a" is not the URL of a server`,
		hookHead + "clusters: [{name: c, cluster: {server: 'https://a', certificate-authority: none.pem}}]\nusers: [{name: u, user: {}}]\n": "none.pem: no such file",
		hookHead + cluster + "users: [{name: u, user: {exec: {command: x}}}]\n":                                                             "the control plane starts no programs",
		hookHead + cluster + "users: [{name: u, user: {client-certificate-data: eA==}}]\n":                                                  "the client certificate: tls: failed to find any PEM data",
	} {
		if _, err := openHook(write(t, "hook.yaml", text), time.Second); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", text, err, want)
		}
	}
}

// TestOutsideMistakes shows what people read when who users are, or what they may do, is said wrongly.
func TestOutsideMistakes(t *testing.T) {
	hook := write(t, "hook.yaml", hookHead)
	issuers := write(t, "issuers.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: false}\n")
	rules := write(t, "rules.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: [{type: RBAC, name: rbac}]\n")
	for flags, want := range map[string]string{
		"oidc-issuer-url=https://a":                                            "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
		"oidc-issuer-url=http://a oidc-client-id=x":                            "URL scheme must be https",
		"authentication-config=" + issuers + " oidc-client-id=x":               "authentication-config file and oidc-* flags are mutually exclusive",
		"authentication-config=" + issuers + " anonymous-auth=true":            "configures anonymous, and anonymous-auth is given",
		"authentication-config=" + rules:                                       "expected AuthenticationConfiguration",
		"token-auth-file=" + hook:                                              "must have at least 3 columns",
		"authentication-token-webhook-config-file=" + hook:                     `authentication-token-webhook-config-file: ` + hook + `: there is no cluster "c"`,
		"authentication-token-webhook-version=v2":                              `unsupported authentication webhook version "v2"`,
		"authentication-token-webhook-cache-ttl=soon":                          `"soon" is not a duration`,
		"anonymous-auth=perhaps":                                               `"perhaps" is neither true nor false`,
		"authorization-mode=RBAC,ABAC":                                         "authorization-mode ABAC is not supported",
		"authorization-mode=Webhook":                                           "authorization-mode Webhook's authorization config file not passed",
		"authorization-mode=Webhook authorization-webhook-config-file=" + hook: `authorizer default: ` + hook + `: there is no cluster "c"`,
		"authorization-config=" + rules + " authorization-mode=RBAC":           "--authorization-config can not be specified when --authorization-mode",
		"authorization-config=" + issuers:                                      "expected AuthorizationConfiguration",
		"audit-webhook-config-file=" + hook:                                    `audit-webhook-config-file: ` + hook + `: there is no cluster "c"`,
		"audit-webhook-mode=strict":                                            `"strict" is neither batch, blocking nor blocking-strict`,
		"audit-webhook-batch-max-size=0":                                       `"0" is not a number between 1 and 1000000`,
	} {
		said := Said{}
		for _, f := range strings.Fields(flags) {
			name, value, _ := strings.Cut(f, "=")
			said[name] = []string{value}
		}
		if _, err := Load("", said); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", flags, err, want)
		}
	}
	if _, err := Load("", Said{"authentication-config": {issuers}, "authorization-config": {rules}}); err != nil {
		t.Error(err)
	}
}
