package pki

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

var testOptions = Options{
	Hostname:   "Node-1.example.org",
	ListenIPs:  []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.IPv4Unspecified()},
	ServiceIPs: []netip.Addr{netip.MustParseAddr("10.43.0.1"), netip.MustParseAddr("fd00::1")},
	Hosts:      []string{"api.example.org", "198.51.100.9"},
}

func mustEnsure(t testing.TB, dir string, o Options) *PKI {
	t.Helper()
	p, err := Ensure(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func at(o Options, when time.Time) Options {
	o.Now = func() time.Time { return when }
	return o
}

func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(data)
	}
	return out
}

func changedFiles(a, b map[string]string) []string {
	var out []string
	for name, data := range b {
		if a[name] != data {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func TestFirstStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data", "pki")
	p := mustEnsure(t, dir, testOptions)
	want := []string{
		"admin.crt", "admin.key", "apiserver-kubelet-client.crt", "apiserver-kubelet-client.key", "apiserver.crt", "apiserver.key",
		"ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "front-proxy-client.crt", "front-proxy-client.key",
		"kubelet-ca.crt", "kubelet-ca.key", "sa.key", "sa.pub",
	}
	if got := changedFiles(nil, snapshot(t, dir)); !slices.Equal(got, want) {
		t.Errorf("files\n got %v\nwant %v", got, want)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder mode %v %v", info.Mode(), err)
	}
	for _, name := range want {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".key") && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	names := []string{
		"localhost", "127.0.0.1", "::1", "node-1.example.org", "node-1", "192.0.2.7", "10.43.0.1", "fd00::1",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "api.example.org",
		"198.51.100.9",
	}
	for _, host := range names {
		if err := p.Serving().Cert.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if err := p.Serving().Cert.VerifyHostname("0.0.0.0"); err == nil {
		t.Error("the unspecified address became a name")
	}
	for _, tt := range []struct {
		pair  *Pair
		ca    *Authority
		usage x509.ExtKeyUsage
		text  string
	}{
		{p.Serving(), p.CA(), x509.ExtKeyUsageServerAuth, "CN=kube-apiserver"},
		{p.Admin(), p.CA(), x509.ExtKeyUsageClientAuth, "CN=proa-admin,O=system:masters"},
		{p.KubeletClient(), p.CA(), x509.ExtKeyUsageClientAuth, "CN=kube-apiserver-kubelet-client,O=system:masters"},
		{p.FrontProxyClient(), p.FrontProxyCA(), x509.ExtKeyUsageClientAuth, "CN=front-proxy-client"},
	} {
		if _, err := tt.pair.Cert.Verify(x509.VerifyOptions{Roots: tt.ca.Pool, KeyUsages: []x509.ExtKeyUsage{tt.usage}}); err != nil {
			t.Errorf("%s: %v", tt.text, err)
		}
		if got := tt.pair.Cert.Subject.String(); got != tt.text {
			t.Errorf("subject %s, want %s", got, tt.text)
		}
	}
	// The cluster's CA must not trust the client certificate of the front proxy.
	if _, err := p.FrontProxyClient().Cert.Verify(x509.VerifyOptions{Roots: p.CA().Pool,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
		t.Error("the cluster CA trusts the front proxy's client")
	}
}

func TestSecondStartWritesNothing(t *testing.T) {
	dir := t.TempDir()
	mustEnsure(t, dir, testOptions)
	before := snapshot(t, dir)
	p := mustEnsure(t, dir, testOptions)
	if got := changedFiles(before, snapshot(t, dir)); got != nil {
		t.Errorf("second start changed %v", got)
	}
	if renewed, err := p.Rotate(); err != nil || renewed != nil {
		t.Errorf("Rotate: %v %v", renewed, err)
	}
}

func TestRenewal(t *testing.T) {
	start := time.Now()
	other := testOptions
	other.Hosts = []string{"elsewhere.example.org"}
	fewer := testOptions
	fewer.Hosts = nil
	all := []string{"admin.crt", "apiserver-kubelet-client.crt", "apiserver.crt", "front-proxy-client.crt"}
	for _, tt := range []struct {
		name string
		opts Options
		want []string
	}{
		{"eleven months later", at(testOptions, start.Add(334*24*time.Hour)), nil},
		{"two weeks before the end", at(testOptions, start.Add(351*24*time.Hour)), all},
		{"long after the end", at(testOptions, start.Add(800*24*time.Hour)), all},
		{"clock far behind", at(testOptions, start.Add(-time.Hour)), all},
		{"another name", at(other, start), []string{"apiserver.crt"}},
		{"a name less", at(fewer, start), []string{"apiserver.crt"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			mustEnsure(t, dir, at(testOptions, start))
			before := snapshot(t, dir)
			mustEnsure(t, dir, tt.opts)
			if got := changedFiles(before, snapshot(t, dir)); !slices.Equal(got, tt.want) {
				t.Errorf("changed %v, want %v", got, tt.want)
			}
		})
	}
}

func TestCertificateDoesNotOutliveCA(t *testing.T) {
	dir, start := t.TempDir(), time.Now()
	mustEnsure(t, dir, at(testOptions, start))
	late := at(testOptions, start.Add(caLife-10*24*time.Hour))
	p := mustEnsure(t, dir, late)
	if got := p.Admin().Cert.NotAfter; !got.Equal(p.CA().Cert.NotAfter) {
		t.Errorf("leaf ends %v, authority %v", got, p.CA().Cert.NotAfter)
	}
	before := snapshot(t, dir)
	mustEnsure(t, dir, late)
	if got := changedFiles(before, snapshot(t, dir)); got != nil {
		t.Errorf("renewed in vain: %v", got)
	}
}

func TestRotateServesTheNewCertificate(t *testing.T) {
	now := time.Now()
	o := testOptions
	o.Now = func() time.Time { return now }
	p := mustEnsure(t, t.TempDir(), o)
	old, _ := p.ServingCert(nil)
	now = now.Add(340 * 24 * time.Hour)
	renewed, err := p.Rotate()
	if err != nil || len(renewed) != 4 {
		t.Fatalf("Rotate: %v %v", renewed, err)
	}
	fresh, _ := p.ServingCert(nil)
	if bytes.Equal(old.Certificate[0], fresh.Certificate[0]) {
		t.Error("the old certificate is still served")
	}
	for _, s := range p.Status() {
		if s.Renewing {
			t.Errorf("%s wants renewal right after it", s.Name)
		}
	}
}

func TestDamagedFiles(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func(dir string) error
		want   string // part of the error, "" if the missing files are created again
	}{
		{"authority key lost", func(d string) error { return os.Remove(d + "/ca.key") },
			"ca.key is missing but ca.crt is there; restore it from a backup"},
		{"authority key cut off", func(d string) error { return os.Truncate(d+"/ca.key", 40) }, "ca.key holds no PEM private key; restore"},
		{"authority empty", func(d string) error { return os.Truncate(d+"/ca.crt", 0) }, "ca.crt holds no PEM certificate; restore"},
		{"certificate of another CA", func(d string) error {
			data, err := os.ReadFile(d + "/front-proxy-ca.crt")
			if err != nil {
				return err
			}
			return os.WriteFile(d+"/ca.crt", data, 0o644)
		}, "ca.crt does not belong to ca.key; restore both files"},
		{"leaf cut off", func(d string) error { return os.Truncate(d+"/admin.crt", 100) },
			"admin.crt holds no PEM certificate; remove it to have it made again"},
		{"leaf key empty", func(d string) error { return os.Truncate(d+"/admin.key", 0) }, "admin.key holds no PEM private key"},
		{"leaf key is garbage", func(d string) error {
			return os.WriteFile(d+"/admin.key", []byte("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"), 0o600)
		}, "admin.key holds no readable private key"},
		{"token key cut off", func(d string) error { return os.Truncate(d+"/sa.key", 50) }, "sa.key holds no PEM private key"},
		{"token keys cut off", func(d string) error { return os.Truncate(d+"/sa.pub", 50) }, "sa.pub is damaged"},
		{"a folder with the name of a file", func(d string) error {
			return firstError(os.Remove(d+"/admin.crt"), os.Mkdir(d+"/admin.crt", 0o700))
		}, "admin.crt is not a PEM file"},
		{"interrupted first start", func(d string) error { return os.Remove(d + "/ca.crt") }, ""},
		{"leaf removed", func(d string) error { return os.Remove(d + "/admin.crt") }, ""},
		{"leaf key removed", func(d string) error { return os.Remove(d + "/admin.key") }, ""},
		{"token keys removed", func(d string) error { return os.Remove(d + "/sa.pub") }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			mustEnsure(t, dir, testOptions)
			if err := tt.damage(dir); err != nil {
				t.Fatal(err)
			}
			p, err := Ensure(dir, testOptions)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.Admin().Cert.Verify(x509.VerifyOptions{Roots: p.CA().Pool,
					KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestFileModesAreRestricted(t *testing.T) {
	dir := t.TempDir()
	mustEnsure(t, dir, testOptions)
	if err := firstError(os.Chmod(dir, 0o755), os.Chmod(dir+"/sa.key", 0o644)); err != nil {
		t.Fatal(err)
	}
	mustEnsure(t, dir, testOptions)
	for path, want := range map[string]fs.FileMode{dir: 0o700, dir + "/sa.key": 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
}

func TestTemporaryFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	s, err := stage(filepath.Join(dir, "ca.key"), []byte("half"), modeSecret)
	if err != nil {
		t.Fatal(err)
	}
	s.tmp.Close()
	mustEnsure(t, dir, testOptions)
	for name := range snapshot(t, dir) {
		if strings.HasPrefix(name, ".") {
			t.Errorf("%s is still there", name)
		}
	}
}

func TestServiceAccountKeyChange(t *testing.T) {
	dir := t.TempDir()
	old := mustEnsure(t, dir, testOptions).ServiceAccountPublicKeys()
	if err := os.Remove(dir + "/sa.key"); err != nil {
		t.Fatal(err)
	}
	keys := mustEnsure(t, dir, testOptions).ServiceAccountPublicKeys()
	if len(old) != 1 || len(keys) != 2 {
		t.Fatalf("%d then %d keys", len(old), len(keys))
	}
	a, _ := encodePublicKey(old[0])
	b, _ := encodePublicKey(keys[1])
	if !bytes.Equal(a, b) {
		t.Error("the old key no longer verifies")
	}
}

// TestHandshake connects a server with the serving certificate and a client with a certificate of Client, each of which verifies
// the other.
func TestHandshake(t *testing.T) {
	p := mustEnsure(t, t.TempDir(), testOptions)
	client, err := p.Client("system:node:a", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	a, b := net.Pipe()
	srv := tls.Server(a, &tls.Config{GetCertificate: p.ServingCert, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: p.CA().Pool})
	done := make(chan error, 1)
	go func() { done <- srv.Handshake() }()
	cli := tls.Client(b, &tls.Config{RootCAs: p.CA().Pool, ServerName: "kubernetes.default.svc",
		Certificates: []tls.Certificate{client.TLS()}})
	if err := cli.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := srv.ConnectionState().PeerCertificates[0].Subject.String(); got != "CN=system:node:a,O=system:nodes" {
		t.Error(got)
	}
}

func TestServerCertificate(t *testing.T) {
	p := mustEnsure(t, t.TempDir(), testOptions)
	pair, err := p.Server("system:node:a", []string{"system:nodes"}, []string{"a", "192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pair.Cert.Verify(x509.VerifyOptions{Roots: p.KubeletCA().Pool, DNSName: "192.0.2.1"}); err != nil {
		t.Error(err)
	}
}

// TestKubeletCAIsSeparate checks that the serving certificate of an agent is trusted neither by the cluster's CA nor by that of
// front proxies, for no usage, and that the CA of agents does not trust the API server's certificate.
func TestKubeletCAIsSeparate(t *testing.T) {
	p := mustEnsure(t, t.TempDir(), testOptions)
	pair, err := p.Server("system:node:a", []string{"system:nodes"}, []string{"a", "192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	anyUse := []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
	for name, pool := range map[string]*x509.CertPool{"the cluster's authority": p.CA().Pool,
		"that of front proxies": p.FrontProxyCA().Pool} {
		if _, err := pair.Cert.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: anyUse}); err == nil {
			t.Errorf("%s trusts the serving certificate of an agent", name)
		}
	}
	if _, err := p.Serving().Cert.Verify(x509.VerifyOptions{Roots: p.KubeletCA().Pool, KeyUsages: anyUse}); err == nil {
		t.Error("the CA of agents trusts the certificate of the API server")
	}
	if bytes.Contains(p.CA().PEM, p.KubeletCA().PEM) {
		t.Error("the bundle of the cluster's authority has that of agents")
	}
}

// TestKubeletCAOfOldFolders checks that servers of a cluster with copies of a folder that has no kubelet CA yet each create it,
// and trust what any of them has signed.
func TestKubeletCAOfOldFolders(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	o := testOptions
	o.Shared = true
	mustEnsure(t, a, o)
	for _, name := range []string{"kubelet-ca.crt", "kubelet-ca.key"} {
		if err := os.Remove(filepath.Join(a, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(b, "pki"), os.DirFS(a)); err != nil {
		t.Fatal(err)
	}
	first, second := mustEnsure(t, a, o), mustEnsure(t, filepath.Join(b, "pki"), o)
	pair, err := first.Server("system:node:a", []string{"system:nodes"}, []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pair.Cert.Verify(x509.VerifyOptions{Roots: second.KubeletCA().Pool, DNSName: "a"}); err != nil {
		t.Error(err)
	}
	other := mustEnsure(t, t.TempDir(), o)
	if _, err := pair.Cert.Verify(x509.VerifyOptions{Roots: other.KubeletCA().Pool, DNSName: "a"}); err == nil {
		t.Error("another cluster has the same authority")
	}
	if again := mustEnsure(t, a, o); !again.KubeletCA().Cert.Equal(first.KubeletCA().Cert) {
		t.Error("the second start makes another authority")
	}
}

func TestKubeconfig(t *testing.T) {
	p := mustEnsure(t, t.TempDir(), testOptions)
	path := filepath.Join(t.TempDir(), "sub", "admin.conf")
	if err := WriteKubeconfig(path, p.AdminKubeconfig("https://127.0.0.1:6443", "")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v %v", info.Mode(), err)
	}
	c, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	x := c.Contexts[c.CurrentContext]
	if c.CurrentContext != "proa" || x.Cluster != "proa" || x.AuthInfo != "proa-admin" {
		t.Errorf("context %q %+v", c.CurrentContext, x)
	}
	if cl := c.Clusters["proa"]; cl.Server != "https://127.0.0.1:6443" || !bytes.Equal(cl.CertificateAuthorityData, p.CA().PEM) {
		t.Errorf("cluster %+v", cl)
	}
	u := c.AuthInfos["proa-admin"]
	if _, err := tls.X509KeyPair(u.ClientCertificateData, u.ClientKeyData); err != nil {
		t.Error(err)
	}
}

func FuzzPEM(f *testing.F) {
	p := mustEnsure(f, f.TempDir(), testOptions)
	f.Add(p.Admin().CertPEM)
	f.Add(p.Admin().KeyPEM)
	f.Add([]byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if certs, err := DecodeCerts(data); err == nil && len(certs) == 0 {
			t.Error("no certificate and no error")
		}
		if key, err := decodeKey(data); err == nil && key == nil {
			t.Error("no key and no error")
		}
		_, _ = decodePublicKeys(data)
	})
}

func BenchmarkFirstStart(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		mustEnsure(b, dir, testOptions)
		b.StopTimer()
		os.RemoveAll(dir)
		b.StartTimer()
	}
}

func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	mustEnsure(b, dir, testOptions)
	for b.Loop() {
		mustEnsure(b, dir, testOptions)
	}
}
