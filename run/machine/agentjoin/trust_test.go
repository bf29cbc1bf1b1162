package agentjoin

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/client/remote"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/nodestatus"
	"proa.dev/proatest"
	"proa.dev/run"
	"proa.dev/run/credentials"
	"proa.dev/run/machine/nodefolder"
	"proa.dev/run/pki"
	"proa.dev/run/settings"
)

const year = 365 * 24 * time.Hour

// ensurePKI loads a PKI folder as if some time had passed, or at an earlier time if passed is negative.
func ensurePKI(t *testing.T, dir string, passed time.Duration) *pki.PKI {
	t.Helper()
	when := time.Now().Add(passed)
	k, err := pki.Ensure(dir, pki.Options{Now: func() time.Time { return when }})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// nodeClient returns a client of a cluster with the certificate of a node, which trusts what the agent trusts.
func nodeClient(t *testing.T, c *proatest.Cluster, dir string, known *Trust) client.Client {
	t.Helper()
	cert := &nodestatus.Certificate{
		File: filepath.Join(dir, ClientFile), Log: slog.New(slog.DiscardHandler),
		Wanted: func() *x509.CertificateRequest {
			return &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}}
		},
		Issue: clientIssuer(c.Server),
	}
	if err := cert.Load(); err != nil {
		t.Fatal(err)
	}
	if cert.Current() == nil {
		if err := cert.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r, err := remote.New(t.Context(), remote.Config{
		URL: c.Config.Host, Agent: "test", Log: slog.New(slog.DiscardHandler), Roots: known.Pool,
		TLS: &tls.Config{GetClientCertificate: cert.Present, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// TestAgentFollowsCARotation has an agent that knows the CA of its cluster but not its successor. The agent reads and stores the
// successor, and trusts the server when the successor has signed its certificate, while its own is still that of the former CA.
func TestAgentFollowsCARotation(t *testing.T) {
	dir, own := t.TempDir(), t.TempDir()
	folder, file := filepath.Join(dir, "pki"), filepath.Join(own, CAFile)
	former := ensurePKI(t, folder, -17*year/2).CA()
	if err := nodestatus.WriteFileAtomic(file, former.PEM); err != nil {
		t.Fatal(err)
	}
	known, err := ReadTrust(file)
	if err != nil {
		t.Fatal(err)
	}
	c := proatest.Start(t, proatest.Memory(), proatest.InDir(dir))
	node, bundle := nodeClient(t, c, own, known), c.Server.CA().PEM
	ctx, stop := context.WithCancel(t.Context())
	if err := known.Follow(ctx, node, slog.New(slog.DiscardHandler), stop); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != string(bundle) || strings.Count(string(text), "BEGIN") != 2 {
		t.Errorf("the agent keeps %s, %v", text, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	c.Stop()

	ensurePKI(t, folder, year)
	c = proatest.Start(t, proatest.Memory(), proatest.InDir(dir))
	if c.Server.CA().Cert.Equal(former.Cert) {
		t.Fatal("the successor does not sign")
	}
	after, err := ReadTrust(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := createNode(t, nodeClient(t, c, own, after)); err != nil {
		t.Errorf("the agent cannot connect after the rotation: %v", err)
	}
	outdated := &Trust{file: filepath.Join(t.TempDir(), CAFile)}
	outdated.set(former.PEM, []*x509.Certificate{former.Cert})
	if err := createNode(t, nodeClient(t, c, own, outdated)); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("an agent that does not know the successor trusts its certificate: %v", err)
	}
}

// createNode creates the Node, which only the node itself may do.
func createNode(t *testing.T, node client.Client) error {
	t.Helper()
	_, err := node.Create(t.Context(), gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	return err
}

// TestTrustedCAOfAgent checks which CA an agent trusts, depending on the CA that it has stored, its token and the server, and
// whether it keeps its certificate and settings.
func TestTrustedCAOfAgent(t *testing.T) {
	former, fresh := ensurePKI(t, t.TempDir(), 0), ensurePKI(t, t.TempDir(), 0)
	url := serveTLS(t, fresh)
	token := func(k *pki.PKI) string {
		t.Helper()
		out, err := credentials.NewJoinToken("abcdef", "0123456789abcdef", k.CA().PEM)
		if err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for _, tt := range []struct {
		name        string
		kept        *pki.PKI
		url, token  string
		want        *pki.PKI // nil for an error
		certificate bool     // the certificate and the settings of the node are kept
	}{
		{"first time", nil, url, token(fresh), fresh, false},
		{"no token", nil, url, "", nil, false},
		{"token of another cluster", nil, url, token(former), nil, false},
		{"no token is needed again", former, url, "", former, true},
		{"the token of before", former, url, token(former), former, true},
		{"a token for the new authority", former, url, token(fresh), fresh, false},
		{"a token from long ago", fresh, url, token(former), fresh, true},
		{"no server answers", former, "https://127.0.0.1:1", token(fresh), former, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, file := agentFolder(t, tt.kept)
			a := Agent{settings.AgentConfig{Server: tt.url, Token: tt.token, Config: settings.Config{DataDir: t.TempDir()}}}
			l := SettingsReader{File: nodefolder.SettingsFile(a.DataDir), Log: slog.New(slog.DiscardHandler)}
			if err := errors.Join(os.MkdirAll(nodefolder.AgentDir(a.DataDir), 0o700),
				l.store(map[string]string{"cluster-cidr": "10.9.0.0/16"})); err != nil {
				t.Fatal(err)
			}
			known, err := a.Authorities(t.Context(), dir)
			if (err == nil) != (tt.want != nil) {
				t.Fatal(err)
			}
			if tt.want == nil {
				return
			}
			if !known.Pool().Equal(tt.want.CA().Pool) {
				t.Error("another CA is trusted")
			}
			if text, err := os.ReadFile(filepath.Join(dir, CAFile)); err != nil || string(text) != string(tt.want.CA().PEM) {
				t.Errorf("another CA is stored, %v", err)
			}
			if _, err := os.Stat(file); (err == nil) != tt.certificate {
				t.Errorf("the node's certificate: %v", err)
			}
			if kept := l.stored(); (kept != nil) != tt.certificate {
				t.Errorf("the stored settings are now %v", kept)
			}
		})
	}
}

// serveTLS accepts connections with the serving certificate of a cluster's API server, and returns its URL.
func serveTLS(t *testing.T, k *pki.PKI) (url string) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: k.ServingCert, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_ = conn.(*tls.Conn).Handshake() // the client may have closed the connection
				_ = conn.Close()
			}
		}
	}()
	return "https://" + l.Addr().String()
}

// TestRunUntilChanged checks that the function is run again when other CAs are trusted, and that it ends with its context.
func TestRunUntilChanged(t *testing.T) {
	a, b := ensurePKI(t, t.TempDir(), 0), ensurePKI(t, t.TempDir(), 0)
	known, err := newTrust(filepath.Join(t.TempDir(), CAFile), a.CA().Cert)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		text string
		want bool
	}{{string(a.CA().PEM), false}, {"", false}, {"nonsense", false}} {
		if other, _ := known.take([]byte(tt.text)); other != tt.want {
			t.Errorf("%q: %v", tt.text, other)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var pools []*x509.CertPool
	err = known.RunUntilChanged(ctx, func(ctx context.Context) error {
		pools = append(pools, known.Pool())
		if len(pools) == 2 {
			stop()
		} else if _, err := known.take(b.CA().PEM); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, context.Canceled) || len(pools) != 2 || !pools[1].Equal(b.CA().Pool) {
		t.Errorf("%d times, %v", len(pools), err)
	}
	failed := errors.New("failed")
	if err := known.RunUntilChanged(t.Context(), func(context.Context) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("the error is not returned: %v", err)
	}
}

// agentFolder creates the folder of an agent that has a certificate, in file, and trusts the CA of kept, or none if it is nil.
func agentFolder(t *testing.T, kept *pki.PKI) (dir, file string) {
	t.Helper()
	dir = t.TempDir()
	file = filepath.Join(dir, ClientFile)
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if kept != nil {
		if err := nodestatus.WriteFileAtomic(filepath.Join(dir, CAFile), kept.CA().PEM); err != nil {
			t.Fatal(err)
		}
	}
	return dir, file
}

// clientIssuer signs the client certificates of nodes with the authority of a server.
func clientIssuer(s *run.Server) nodestatus.Issuer {
	return func(_ context.Context, request []byte, _ crypto.Signer) ([]byte, error) {
		return s.Sign(request)
	}
}
