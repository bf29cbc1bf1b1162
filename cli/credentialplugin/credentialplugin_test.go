package credentialplugin

import (
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/client/apireader"
	"proa.dev/test/program"
)

// TestCredentialPlugins runs credential plugins that print a valid ExecCredential, and some that do not.
func TestCredentialPlugins(t *testing.T) {
	const beta, kind = "client.authentication.k8s.io/v1beta1", `{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential",`
	for name, c := range map[string]struct{ mode, script, want string }{
		"a token":          {"", `echo '` + kind + `"status":{"token":"abc"}}'`, "abc"},
		"the input":        {"", `echo '` + kind + `"status":{"token":"'$(echo "$KUBERNETES_EXEC_INFO" | tr -d '"{}')'"}}'`, "apiVersion:" + beta + ",kind:ExecCredential,spec:interactive:false,cluster:server:https://k"},
		"another version":  {"", `echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"abc"}}'`, "wants an ExecCredential"},
		"expired":          {"", `echo '` + kind + `"status":{"token":"abc","expirationTimestamp":"2020-01-01T00:00:00Z"}}'`, "expired on 2020"},
		"no JSON":          {"", `echo abc`, "did not print an ExecCredential"},
		"it fails":         {"", `echo "log in first" >&2; exit 1`, "log in first"},
		"wants a terminal": {"Always", `echo '` + kind + `"status":{"token":"abc"}}'`, "interactiveMode"},
	} {
		file := filepath.Join(t.TempDir(), "login")
		if err := program.Write(file, []byte("#!/bin/sh\n"+c.script+"\n")); err != nil {
			t.Fatal(err)
		}
		got, err := Run(t.Context(), &apireader.Exec{APIVersion: beta, Command: file, InteractiveMode: c.mode,
			ProvideClusterInfo: true, Cluster: apireader.ExecCluster{Server: "https://k"}})
		text := got.Token
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, c.want) {
			t.Errorf("%s: got %q (%v), want %q", name, got.Token, err, c.want)
		}
	}
}
