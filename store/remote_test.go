package store

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"

	"proa.dev/kv"
	"proa.dev/store/etcdtest"
	"proa.dev/test/ports"
)

func TestDialWithoutServer(t *testing.T) {
	if _, err := Dial(t.Context(), Config{}); err == nil {
		t.Error("no endpoint is accepted")
	}
	addr := ports.Address(t)
	if _, err := Dial(t.Context(), Config{Endpoints: []string{"http://" + addr}, Timeout: 50 * time.Millisecond}); err == nil {
		t.Error("connected without a server")
	}
	if _, err := Dial(t.Context(), Config{Endpoints: []string{"https://" + addr}, CAFile: "/does/not/exist"}); err == nil {
		t.Error("a missing file is accepted")
	}
}

// TestTLS connects with and without a client certificate that the server trusts.
func TestTLS(t *testing.T) {
	etcd := etcdtest.Start(t, t.TempDir(), etcdserver.DefaultSnapshotCount)
	defer etcd.HardStop()
	ca, cert, keyFile := certificate(t)
	pair, err := tls.LoadX509KeyPair(cert, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pemBytes, err := os.ReadFile(ca)
	if err != nil || !pool.AppendCertsFromPEM(pemBytes) {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := v3rpc.Server(etcd, &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}, nil)
	go srv.Serve(lis)
	defer srv.Stop()
	cfg := Config{Endpoints: []string{"https://" + lis.Addr().String()}, CAFile: ca, Timeout: 10 * time.Second}
	cfg.CertFile, cfg.KeyFile = cert, keyFile
	e, err := Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	rev, err := e.Commit(t.Context(), kv.Write{Key: "/a/x", Value: []byte("1")})
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range e.Watch(t.Context(), "/a/", rev-1) {
		if err != nil || len(b.Changes) != 1 {
			t.Errorf("%+v, %v", b, err)
		}
		break
	}
	cfg.CertFile, cfg.KeyFile, cfg.Timeout = "", "", 100*time.Millisecond
	if _, err := Dial(t.Context(), cfg); err == nil {
		t.Error("connected without a certificate")
	}
}

// certificate writes a self-signed certificate for this host and returns the files.
func certificate(t *testing.T) (ca, cert, keyFile string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "etcd"},
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, bytes []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cert = write("cert", "CERTIFICATE", der)
	return cert, cert, write("key", "PRIVATE KEY", keyDER)
}

// TestUnreachableServer checks that operations fail with ErrUnavailable while the server is gone, and work again afterwards.
func TestUnreachableServer(t *testing.T) {
	o := serveEtcd(t)
	e := connectTo(t, o.addr)
	// The short timeout is only for the outage: a write that times out when the server is back may have been made.
	whole := e.timeout
	e.timeout = time.Second
	o.closeConnections()
	_, err1 := e.Commit(t.Context(), kv.Write{Key: "/a/x", Value: []byte("1")})
	_, _, err2 := e.Get(t.Context(), "/a/x")
	_, err3 := e.Fresh(t.Context(), "/a/")
	err4 := e.Healthy(t.Context())
	for i, err := range []error{err1, err2, err3, err4} {
		if !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("%d: got %v", i, err)
		}
	}
	o.listen()
	e.timeout = whole
	for {
		_, err := e.Commit(t.Context(), kv.Write{Key: "/a/x", Value: []byte("1")})
		if err == nil {
			break
		}
		if !errors.Is(err, kv.ErrUnavailable) {
			t.Fatal(err)
		}
	}
}

// TestListInChunks lists more keys than one request to etcd returns.
func TestListInChunks(t *testing.T) {
	o := serveEtcd(t)
	e := connectTo(t, o.addr)
	const n = chunk + 50
	for i := 0; i < n; i += maxTxnOps {
		var writes []kv.Write
		for j := i; j < min(i+maxTxnOps, n); j++ {
			writes = append(writes, kv.Write{Key: key(j/676, j/26%26, j%26), Value: []byte("1")})
		}
		if _, err := o.etcd.Txn(t.Context(), transaction(writes, nil)); err != nil {
			t.Fatal(err)
		}
	}
	for limit, want := range map[int64]int{0: n, 10: 10, chunk: chunk, chunk + 1: chunk + 1, n + 1: n} {
		p, err := e.List(t.Context(), kv.Range{Prefix: "/events/", Limit: limit})
		if err != nil || len(p.Pairs) != want || p.Total != n {
			t.Errorf("limit %d: %d of %d, %v", limit, len(p.Pairs), p.Total, err)
		}
		for i := 1; i < len(p.Pairs); i++ {
			if p.Pairs[i-1].Key >= p.Pairs[i].Key {
				t.Fatalf("%s before %s", p.Pairs[i-1].Key, p.Pairs[i].Key)
			}
		}
	}
}

// TestRevisionRequestsAreShared requests the revision from many goroutines. No caller may get the response to a request that
// was sent before its call.
func TestRevisionRequestsAreShared(t *testing.T) {
	var now, requests atomic.Int64
	r := &revisionReader{timeout: time.Minute, read: func(context.Context) (int64, error) {
		requests.Add(1)
		return now.Load(), nil
	}}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 100 {
				before := now.Add(1)
				got, err := r.get(t.Context())
				if err != nil || got < before {
					t.Errorf("got %d after %d (%v)", got, before, err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d requests for %d calls", requests.Load(), now.Load())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	block := make(chan struct{})
	r.read = func(context.Context) (int64, error) { <-block; return 1, nil }
	if _, err := r.get(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(block)
}
