package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/run/settings"
)

// TestInvalidIdentitySettings checks the errors for invalid settings of authentication and authorization.
func TestInvalidIdentitySettings(t *testing.T) {
	const noCluster = "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
	hook := writeTempFile(t, "hook.yaml", noCluster)
	issuers := writeTempFile(t, "issuers.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: false}\n")
	rules := writeTempFile(t, "rules.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: [{type: RBAC, name: rbac}]\n")
	for flags, want := range map[string]string{
		"oidc-issuer-url=https://a":                 "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
		"oidc-issuer-url=http://a oidc-client-id=x": "URL scheme must be https",
		"authentication-config=" + issuers +
			" oidc-client-id=x": "authentication-config file and oidc-* flags are mutually exclusive",
		"authentication-config=" + issuers + " anonymous-auth=true": "configures anonymous, and anonymous-auth is given",
		"authentication-config=" + rules:                            "expected AuthenticationConfiguration",
		"token-auth-file=" + hook:                                   "must have at least 3 columns",
		"authentication-token-webhook-config-file=" + hook: `authentication-token-webhook-config-file: ` + hook +
			`: there is no cluster "c"`,
		"authentication-token-webhook-version=v2":                              `unsupported authentication webhook version "v2"`,
		"authentication-token-webhook-cache-ttl=soon":                          `"soon" is not a duration`,
		"anonymous-auth=perhaps":                                               `"perhaps" is neither true nor false`,
		"authorization-mode=RBAC,ABAC":                                         "authorization-mode ABAC is not supported",
		"authorization-mode=Webhook":                                           "authorization-mode Webhook's authorization config file not passed",
		"authorization-mode=Webhook authorization-webhook-config-file=" + hook: `authorizer default: ` + hook + `: there is no cluster "c"`,
		"authorization-config=" + rules + " authorization-mode=RBAC":           "--authorization-config can not be specified when --authorization-mode",
		"authorization-config=" + issuers:                                      "expected AuthorizationConfiguration",
		"audit-webhook-config-file=" + hook: `audit-webhook-config-file: ` + hook +
			`: there is no cluster "c"`,
		"audit-webhook-mode=strict":      `"strict" is neither batch, blocking nor blocking-strict`,
		"audit-webhook-batch-max-size=0": `"0" is not a number between 1 and 1000000`,
	} {
		given := settings.Values{}
		for _, f := range strings.Fields(flags) {
			name, value, _ := strings.Cut(f, "=")
			given[name] = []string{value}
		}
		if _, err := Load("", given); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", flags, err, want)
		}
	}
	if _, err := Load("", settings.Values{"authentication-config": {issuers}, "authorization-config": {rules}}); err != nil {
		t.Error(err)
	}
}

// writeTempFile writes a text into a file in a temporary folder.
func writeTempFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
