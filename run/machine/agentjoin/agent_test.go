package agentjoin

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/client/remote"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/nodejoin"
	"proa.dev/node/nodestatus"
	"proa.dev/proatest"
	"proa.dev/run/bootstraproles"
	"proa.dev/run/credentials"
	"proa.dev/run/settings"
)

// testCluster is a cluster that agents join over HTTPS; pool has its CA.
type testCluster struct {
	*proatest.Cluster
	pool *x509.CertPool
}

func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	j := &testCluster{proatest.Start(t, proatest.Memory()), x509.NewCertPool()}
	j.pool.AppendCertsFromPEM(j.Config.CAData)
	return j
}

// agent creates a bootstrap token, and returns an agent with it; node is the only node that the token is valid for, or empty.
func (j *testCluster) agent(t *testing.T, name, id, node string) *Agent {
	t.Helper()
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id}, Type: "bootstrap.kubernetes.io/token",
		Data: map[string][]byte{
			"token-id": []byte(id), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
			"auth-extra-groups": []byte(bootstraproles.JoinGroup),
		},
	}
	if node != "" {
		s.Data[nodejoin.NodeSecretKey] = []byte(node)
	}
	if _, err := j.Client.Create(t.Context(), gr.Secrets, s); err != nil {
		t.Fatal(err)
	}
	token, err := credentials.NewJoinToken(id, "0123456789abcdef", j.Config.CAData)
	if err != nil {
		t.Fatal(err)
	}
	return &Agent{settings.AgentConfig{Server: j.Config.Host, Token: token.String(),
		Config: settings.Config{Node: settings.NodeConfig{Name: name}}}}
}

func validity(c *nodestatus.Certificate) time.Duration {
	return c.Current().Leaf.NotAfter.Sub(c.Current().Leaf.NotBefore)
}

// TestJoinWithNameOfExistingNode checks that an agent cannot join under the name of an existing node, that the error says what to
// do, and that the agent joins with a token for that node, from the same folder.
func TestJoinWithNameOfExistingNode(t *testing.T) {
	j := newTestCluster(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if _, err := j.Client.Create(ctx, gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	for _, id := range []string{"aaaaaa", "bbbbbb"} {
		_, _, err := j.agent(t, "a", id, "").Join(ctx, dir, j.pool, log)
		if err == nil || !strings.Contains(err.Error(), `Node "a" exists already`) ||
			!strings.Contains(err.Error(), `"proa token create --node a"`) || strings.Contains(err.Error(), "expired") {
			t.Errorf("an agent becomes a node that exists: %v", err)
		}
	}
	cert, joined, err := j.agent(t, "a", "cccccc", "a").Join(ctx, dir, j.pool, log)
	if err != nil || !joined || validity(cert) < 300*24*time.Hour {
		t.Fatalf("with a token for the node: %v %v", joined, err)
	}
	if _, joined, err = j.agent(t, "a", "dddddd", "").Join(ctx, dir, j.pool, log); err != nil || joined {
		t.Errorf("with the certificate that it has: %v %v", joined, err)
	}
}

// TestJoinErrors checks that the error of an agent that cannot join has the real cause: a serving certificate without the
// server's address, a server that does not answer, or a token that is not accepted.
func TestJoinErrors(t *testing.T) {
	j := newTestCluster(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	const expired, sans = "has the token expired?", "--tls-san 127.0.0.9"
	for _, c := range []struct{ name, server, token, want, wantNot string }{
		{"another name", forwardTCP(t, "127.0.0.9:0", strings.TrimPrefix(j.Config.Host, "https://")), "", sans, expired},
		{"no server answers", "https://127.0.0.1:1", "", "connection refused", expired},
		{"an old token", "", "zzzzzz.0123456789abcdef", expired, sans},
	} {
		a := &Agent{settings.AgentConfig{Server: cmp.Or(c.server, j.Config.Host),
			Config: settings.Config{Node: settings.NodeConfig{Name: "a"}}}}
		id, secret, _ := strings.Cut(cmp.Or(c.token, "abcdef.0123456789abcdef"), ".")
		token, err := credentials.NewJoinToken(id, secret, j.Config.CAData)
		if err != nil {
			t.Fatal(err)
		}
		a.Token = token.String()
		if _, _, err = a.Join(ctx, t.TempDir(), j.pool, slog.New(slog.DiscardHandler)); err == nil ||
			!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), c.wantNot) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestExpiredCertificateIsNamed checks that an agent whose certificate has expired says so and what to do, whether it has an old
// token, none at all, or a server that does not answer; and that it joins again with a token for its node.
func TestExpiredCertificateIsNamed(t *testing.T) {
	j, log := newTestCluster(t), slog.New(slog.DiscardHandler)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if _, err := j.Client.Create(ctx, gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	old := ensurePKI(t, t.TempDir(), -3*365*24*time.Hour)
	pair, err := old.Client("system:node:a", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ClientFile), append(pair.CertPEM, pair.KeyPEM...), 0o600); err != nil {
		t.Fatal(err)
	}
	stale, err := credentials.NewJoinToken("zzzzzz", "0123456789abcdef", j.Config.CAData)
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]settings.AgentConfig{
		"no token": {Server: j.Config.Host}, "an old token": {Server: j.Config.Host, Token: stale.String()},
		"no server": {Server: "https://127.0.0.1:1", Token: stale.String()},
	} {
		a.Node.Name = "a"
		_, _, err := (&Agent{a}).Join(ctx, dir, j.pool, log)
		if err == nil || !strings.Contains(err.Error(), "the certificate of node a expired at ") ||
			!strings.Contains(err.Error(), "proa token create --node a") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, joined, err := j.agent(t, "a", "eeeeee", "a").Join(ctx, dir, j.pool, log); err != nil || !joined {
		t.Errorf("with a token for the node: %v %v", joined, err)
	}
}

// forwardTCP forwards connections from one address to another, and returns the URL of the former.
func forwardTCP(t *testing.T, at, to string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	}()
	return "https://" + l.Addr().String()
}

// TestFirstCertificateIsReplaced checks that a node replaces its first certificate, which is valid for a day, when the Node is
// registered.
func TestFirstCertificateIsReplaced(t *testing.T) {
	j := newTestCluster(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	a, log := j.agent(t, "new", "aaaaaa", ""), slog.New(slog.DiscardHandler)
	cert, joined, err := a.Join(ctx, t.TempDir(), j.pool, log)
	if err != nil || !joined || validity(cert) > 24*time.Hour {
		t.Fatalf("%v %v", joined, err)
	}
	kubelet, err := remote.New(ctx,
		remote.Config{URL: a.Server, Agent: "test", Log: log,
			TLS: &tls.Config{RootCAs: j.pool, GetClientCertificate: cert.Present, MinVersion: tls.VersionTLS12}})
	if err != nil {
		t.Fatal(err)
	}
	defer kubelet.Close()
	cert.Issue = nodestatus.RequestCertificates(func() client.Client { return kubelet },
		certificatesv1.KubeAPIServerClientKubeletSignerName)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.ReplaceFirstCertificate(ctx, kubelet, cert, log)
	}()
	if _, err := kubelet.Create(ctx, gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}}); err != nil {
		t.Fatal(err)
	}
	<-done
	if validity(cert) < 300*24*time.Hour {
		t.Errorf("the certificate is good for %v", validity(cert))
	}
	text, err := os.ReadFile(filepath.Clean(cert.File))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	if stored, err := x509.ParseCertificate(block.Bytes); err != nil || !stored.Equal(cert.Current().Leaf) {
		t.Errorf("another certificate is stored: %v", err)
	}
}
