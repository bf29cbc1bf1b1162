package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"proa.dev/test/ports"
)

// authority is a certificate authority like that of envtest.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "envtest"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign})
	return a
}

// sign returns a certificate, which is self-signed if there is no authority yet.
func (a *authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour),
		time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// user returns a client certificate of a user in a group.
func (a *authority) user(group string) tls.Certificate {
	cert, key := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "somebody", Organization: []string{group}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func pemOf(block string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: block, Bytes: der})
}

// TestServerOfEnvtest starts the server with files as envtest writes them: it serves with the given certificate, and
// authenticates users of the given certificate authority, and no others.
func TestServerOfEnvtest(t *testing.T) {
	dir, address := t.TempDir(), ports.Address(t)
	servers, users := newAuthority(t), newAuthority(t)
	cert, key := servers.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"apiserver.crt": pemOf("CERTIFICATE", cert.Raw), "apiserver.key": pemOf("PRIVATE KEY", der),
		"client.crt": pemOf("CERTIFICATE", users.cert.Raw),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, port, _ := net.SplitHostPort(address)
	ctx, cancel := context.WithCancel(t.Context())
	var log bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		ended <- play(ctx, slog.New(slog.NewTextHandler(&log, nil)), "kube-apiserver", []string{
			"--cert-dir=" + dir, "--bind-address=127.0.0.1", "--secure-port=" + port,
			"--client-ca-file=" + filepath.Join(dir, "client.crt"),
			"--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24", "--etcd-servers=http://127.0.0.1:1",
			"--allow-privileged=true",
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v\n%s", err, log.String())
		}
	})
	roots := x509.NewCertPool()
	roots.AddCert(servers.cert)
	ask := func(user tls.Certificate) (int, error) {
		c := &http.Client{Timeout: time.Minute,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{user}},
				DisableKeepAlives: true}}
		resp, err := c.Get("https://" + address + "/api/v1/namespaces/default")
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	admin := users.user("system:masters")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		code, err := ask(admin)
		if code == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the administrator gets %d, %v", code, err)
		}
	}
	if code, err := ask(newAuthority(t).user("system:masters")); code == http.StatusOK {
		t.Errorf("a user of another authority gets %d, %v", code, err)
	}
	if code, err := ask(users.user("nobody")); code != http.StatusForbidden {
		t.Errorf("a user without rights gets %d, %v", code, err)
	}
}
