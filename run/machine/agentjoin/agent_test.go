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

// joining is a cluster that agents join over HTTPS.
type joining struct {
	*proatest.Cluster
	pool *x509.CertPool
}

func newJoining(t *testing.T) *joining {
	t.Helper()
	j := &joining{proatest.Start(t, proatest.Memory()), x509.NewCertPool()}
	j.pool.AppendCertsFromPEM(j.Config.CAData)
	return j
}

// agent is one with a token; node is the node that the token was made for, or empty.
func (j *joining) agent(t *testing.T, name, id, node string) *Agent {
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

func life(c *nodestatus.Certificate) time.Duration {
	return c.Current().Leaf.NotAfter.Sub(c.Current().Leaf.NotBefore)
}

// TestAgentWithAnExistingName holds that an agent with a token is told why it cannot be a node that exists and what to do, and that
// it joins with a token for that node, from the same folder.
func TestAgentWithAnExistingName(t *testing.T) {
	j := newJoining(t)
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
	if err != nil || !joined || life(cert) < 300*24*time.Hour {
		t.Fatalf("with a token for the node: %v %v", joined, err)
	}
	if _, joined, err = j.agent(t, "a", "dddddd", "").Join(ctx, dir, j.pool, log); err != nil || joined {
		t.Errorf("with the certificate that it has: %v %v", joined, err)
	}
}

// TestWhyAnAgentCannotJoin holds that an agent names the real cause: a server that has another name, nobody who
// answers, or a token that is not accepted.
func TestWhyAnAgentCannotJoin(t *testing.T) {
	j := newJoining(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	const expired, sans = "has the token expired?", "--tls-san 127.0.0.9"
	for _, c := range []struct{ name, server, token, want, not string }{
		{"another name", forward(t, "127.0.0.9:0", strings.TrimPrefix(j.Config.Host, "https://")), "", sans, expired},
		{"nobody answers", "https://127.0.0.1:1", "", "connection refused", expired},
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
			!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), c.not) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// forward makes a server reachable at another address, and returns its URL there.
func forward(t *testing.T, at, to string) (url string) {
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

// TestFirstCertificateIsReplaced holds that a node replaces the certificate of its token, which is good for a day, when it is
// registered.
func TestFirstCertificateIsReplaced(t *testing.T) {
	j := newJoining(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	a, log := j.agent(t, "new", "aaaaaa", ""), slog.New(slog.DiscardHandler)
	cert, joined, err := a.Join(ctx, t.TempDir(), j.pool, log)
	if err != nil || !joined || life(cert) > 24*time.Hour {
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
	if life(cert) < 300*24*time.Hour {
		t.Errorf("the certificate is good for %v", life(cert))
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
