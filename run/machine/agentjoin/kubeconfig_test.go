package agentjoin

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proa.dev/node/nodestatus"
	"proa.dev/run/pki"
	"proa.dev/run/settings"
)

// agentWithKubeconfig returns an agent that joins a server with a kubeconfig; user has the fields of its user.
func agentWithKubeconfig(t *testing.T, server string, ca []byte, user string, flags settings.Values) *Agent {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"+
		"clusters: [{name: c, cluster: {server: '%s', certificate-authority-data: %s}}]\nusers: [{name: u, user: {%s}}]\n",
		server, base64.StdEncoding.EncodeToString(ca), user)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := settings.LoadAgent(settings.AgentCluster{Kubeconfig: file}, flags)
	if err != nil {
		t.Fatal(err)
	}
	return &Agent{c}
}

func userFields(p *pki.Pair) string {
	text := base64.StdEncoding.EncodeToString
	return "client-certificate-data: " + text(p.CertPEM) + ", client-key-data: " + text(p.KeyPEM)
}

// TestJoinByKubeconfig has agents join with kubeconfigs: with a bootstrap token, and as a user that is the node already. The
// latter needs no certificate signing request.
func TestJoinByKubeconfig(t *testing.T) {
	j := newTestCluster(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	log := slog.New(slog.DiscardHandler)
	j.agent(t, "unused", "aaaaaa", "") // creates the token
	byToken := agentWithKubeconfig(t, j.Config.Host, j.Config.CAData, "token: aaaaaa.0123456789abcdef", settings.Values{"node": {"new"}})
	dir := t.TempDir()
	known, err := byToken.Authorities(ctx, dir)
	if err != nil || !known.Contains(j.Server.CA().Cert.Equal) {
		t.Fatalf("the authority of the kubeconfig is not trusted: %v", err)
	}
	cert, joined, err := byToken.Join(ctx, dir, known.Pool(), log)
	if err != nil || !joined || cert.Current().Leaf.Subject.CommonName != "system:node:new" {
		t.Fatalf("with a bootstrap token: %v %v", joined, err)
	}

	issued := &nodestatus.Certificate{
		File: filepath.Join(t.TempDir(), ClientFile), Log: log, Issue: clientIssuer(j.Server),
		Wanted: func() *x509.CertificateRequest { return nodestatus.ClientRequest("b") },
	}
	if err := issued.Load(); err != nil {
		t.Fatal(err)
	}
	if err := issued.Renew(ctx); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(issued.File)
	if err != nil {
		t.Fatal(err)
	}
	asNode := agentWithKubeconfig(t, j.Config.Host, j.Config.CAData, userFields(&pki.Pair{CertPEM: text, KeyPEM: text}), nil)
	cert, joined, err = asNode.Join(ctx, t.TempDir(), j.pool, log)
	if err != nil || joined || asNode.Node.Name != "b" || !cert.Current().Leaf.Equal(issued.Current().Leaf) {
		t.Fatalf("as the node itself: %v %v", joined, err)
	}

	wrong := agentWithKubeconfig(t, j.Config.Host, j.Config.CAData, "token: aaaaaa.fedcba9876543210", settings.Values{"node": {"c"}})
	if _, _, err = wrong.Join(ctx, t.TempDir(), j.pool, log); err == nil || !strings.Contains(err.Error(), "system:node-bootstrapper") {
		t.Errorf("with a token that does not count: %v", err)
	}
}

// TestKubeconfigWithNewCA checks that the CA of a kubeconfig replaces the stored CA of an agent only if the server's certificate is
// signed by the former.
func TestKubeconfigWithNewCA(t *testing.T) {
	former, fresh := ensurePKI(t, t.TempDir(), 0), ensurePKI(t, t.TempDir(), 0)
	var authorizations []string
	server := serveWithoutCA(t, fresh, nil, &authorizations)
	for _, tt := range []struct {
		name             string
		server           string
		kept, named      *pki.PKI
		want             *pki.PKI
		keepsCertificate bool
	}{
		{"first time", server, nil, fresh, fresh, false},
		{"the same", server, fresh, fresh, fresh, true},
		{"a kubeconfig from long ago", server, fresh, former, fresh, true},
		{"the cluster has a new authority", server, former, fresh, fresh, false},
		{"no server answers", "https://127.0.0.1:1", former, fresh, former, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, file := agentFolder(t, tt.kept)
			known, err := agentWithKubeconfig(t, tt.server, tt.named.CA().PEM, "token: t", nil).Authorities(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			if !known.Pool().Equal(tt.want.CA().Pool) {
				t.Error("another authority is trusted")
			}
			if _, err := os.Stat(file); (err == nil) != tt.keepsCertificate {
				t.Errorf("the node's certificate: %v", err)
			}
		})
	}
}
