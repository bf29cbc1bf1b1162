package settings

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/run/pki"
)

// TestAgentKubeconfig checks what "proa agent --kubeconfig" reads from a kubeconfig, and that errors say what to do.
func TestAgentKubeconfig(t *testing.T) {
	dir := t.TempDir()
	k, err := pki.Ensure(filepath.Join(dir, "pki"), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	asNode := clientPair(t, k, "system:node:b", "system:nodes")
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("ca.crt", string(k.CA().PEM))
	write("token", "abcdef.0123456789abcdef\n")
	const head = "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
	const cluster, token = "clusters: [{name: c, cluster: {server: 'https://192.0.2.7', certificate-authority: ca.crt}}]\n", "users: [{name: u, user: {token: t}}]\n"
	withCluster := func(fields string) string { return head + "clusters: [{name: c, cluster: {" + fields + "}}]\n" + token }
	for _, tt := range []struct {
		name, text string
		also       AgentCluster
		flags      Values
		node, err  string
	}{
		{name: "a token", text: head + cluster + token, flags: Values{"node": {"a"}}, node: "a"},
		{name: "a token in a file", text: head + cluster + "users: [{name: u, user: {tokenFile: token}}]\n", flags: Values{"node": {"a"}},
			node: "a"},
		{name: "another user", text: head + cluster + "users: [{name: u, user: {" + clientPair(t, k, "admin", "system:masters") + "}}]\n",
			flags: Values{"node": {"a"}}, node: "a"},
		{name: "the node itself", text: head + cluster + "users: [{name: u, user: {" + asNode + "}}]\n", node: "b"},
		{name: "another node", text: head + cluster + "users: [{name: u, user: {" + asNode + "}}]\n", flags: Values{"node": {"a"}},
			err: "is node b, and cannot be node a: leave out --node"},
		{name: "both", text: head + cluster + token, also: AgentCluster{Server: "https://192.0.2.7:6443"},
			err: "leave out --server and --token"},
		{name: "a token beside", text: head + cluster + token, also: AgentCluster{Token: "t"}, err: "leave out --server and --token"},
		{name: "no context", text: cluster + token, err: "there is no current-context; name the context"},
		{name: "no authority", text: withCluster("server: 'https://192.0.2.7'"), err: "has no certificate-authority, by which the agent knows the API server: add certificate-authority-data"},
		{name: "a missing file of the authority", text: withCluster("server: 'https://192.0.2.7', certificate-authority: gone.crt"),
			err: "the certificate-authority: open "},
		{name: "insecure", text: withCluster("server: 'https://192.0.2.7', insecure-skip-tls-verify: true"),
			err: "would let an agent trust any server"},
		{name: "a proxy", text: withCluster("server: 'https://192.0.2.7', certificate-authority: ca.crt, proxy-url: 'http://p'"), err: "leave out proxy-url"},
		{name: "not HTTPS", text: withCluster("server: 'http://192.0.2.7', certificate-authority: ca.crt"),
			err: `the server "http://192.0.2.7" is not a URL such as https://`},
		{name: "no credentials", text: head + cluster + "users: [{name: u, user: {exec: {command: login}}}]\n",
			err: "neither a client certificate nor a token"},
		{name: "no YAML", text: "\t", err: "read the kubeconfig: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.also.Kubeconfig = write("kubeconfig", tt.text)
			c, err := LoadAgent(tt.also, tt.flags)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.Server != "https://192.0.2.7" || string(c.Login.CA) != string(k.CA().PEM) || c.Node.Name != tt.node {
				t.Errorf("server %s, node %s", c.Server, c.Node.Name)
			}
			if strings.Contains(tt.text, "tokenFile") {
				if got, err := c.Login.Token(); err != nil || got != "abcdef.0123456789abcdef" {
					t.Errorf("%q %v", got, err)
				}
			}
		})
	}
	if _, err := LoadAgent(AgentCluster{Kubeconfig: filepath.Join(dir, "gone")}, nil); err == nil ||
		!strings.Contains(err.Error(), "there is no file "+filepath.Join(dir, "gone")) {
		t.Errorf("%v", err)
	}
	if _, err := LoadAgent(AgentCluster{}, nil); err == nil || !strings.Contains(err.Error(), "--kubeconfig FILE") {
		t.Errorf("%v", err)
	}
}

// clientPair returns a client certificate and its key as fields of a user in a kubeconfig.
func clientPair(t *testing.T, k *pki.PKI, name string, groups ...string) string {
	t.Helper()
	p, err := k.Client(name, groups...)
	if err != nil {
		t.Fatal(err)
	}
	text := base64.StdEncoding.EncodeToString
	return "client-certificate-data: " + text(p.CertPEM) + ", client-key-data: " + text(p.KeyPEM)
}
