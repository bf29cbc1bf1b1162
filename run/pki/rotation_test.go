package pki

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"proa.dev/internal/textcase"
)

// year is the unit of certificate validities in these tests.
const year = 365 * 24 * time.Hour

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func yearsAfterEpoch(t *testing.T, text string) time.Time {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return epoch.Add(time.Duration(n * float64(year)))
}

// operatorCA returns a CA that an operator provides, which proa does not rotate.
func operatorCA(t *testing.T, key crypto.Signer, from, to time.Time) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "theirs"}, NotBefore: from, NotAfter: to,
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDecide(t *testing.T) {
	textcase.Decide(t, "testdata/decide.txt", "=>", func(t *testing.T, in string) string {
		keys := map[string]crypto.Signer{}
		key := func(name string) crypto.Signer {
			if keys[name] == nil {
				keys[name] = mustKey(t)
			}
			return keys[name]
		}
		h, now := authorityState{name: "proa-ca"}, epoch
		for n, line := range strings.Split(strings.TrimSpace(in), "\n") {
			words := strings.Fields(line)
			switch {
			case n == 0:
				for text := range strings.SplitSeq(line, ", ") {
					words := strings.Fields(text)
					from, to := yearsAfterEpoch(t, words[1]), yearsAfterEpoch(t, words[2])
					h.certs = append(h.certs, caOfKey(t, key(words[0]), words[0], from, to))
				}
			case words[0] == "key":
				h.key = key(words[1])
				if len(words) == 4 {
					h.next = key(words[3])
				}
			case words[0] == "shared":
				h.shared = true
			case words[0] == "year":
				now = yearsAfterEpoch(t, words[1])
			default:
				t.Fatalf("unknown line %q", line)
			}
		}
		return string(h.decide(now))
	})
}

func mustKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// caOfKey returns the CA certificate of a key: one of proa, or, if its name is in lower case, one of an operator.
func caOfKey(t *testing.T, key crypto.Signer, name string, from, to time.Time) *x509.Certificate {
	t.Helper()
	if strings.ToLower(name) == name {
		return operatorCA(t, key, from, to)
	}
	c, err := selfSign("proa-ca", key, from.Add(backdate))
	if err != nil {
		t.Fatal(err)
	}
	if !c.NotBefore.Equal(from) || !c.NotAfter.Add(-backdate).Equal(to) {
		t.Fatalf("authorities of proa live from %v to %v, not from %v to %v", c.NotBefore, c.NotAfter, from, to)
	}
	return c
}

// trustingPeer is a process on another machine, with the CA bundle that it trusts, and its certificate.
type trustingPeer struct {
	name   string
	bundle *x509.CertPool
	// lag is how late the peer gets a new bundle; pending has the bundles that it has not got yet.
	lag     time.Duration
	pending []publishedBundle
	leaf    *x509.Certificate
}

// publishedBundle is a bundle and the time of its publication.
type publishedBundle struct {
	at     time.Time
	bundle *x509.CertPool
}

// update makes the peer trust the bundles that have reached it by now, and renew its certificate when nine tenths of its validity
// are over.
func (p *trustingPeer) update(t *testing.T, k *PKI, now time.Time) {
	t.Helper()
	if n := len(p.pending); n == 0 || p.pending[n-1].bundle != k.CA().Pool {
		p.pending = append(p.pending, publishedBundle{now, k.CA().Pool})
	}
	for len(p.pending) > 0 && (p.bundle == nil || now.Sub(p.pending[0].at) >= p.lag) {
		p.bundle, p.pending = p.pending[0].bundle, p.pending[1:]
	}
	if p.leaf == nil || now.After(p.leaf.NotBefore.Add(p.leaf.NotAfter.Sub(p.leaf.NotBefore)*9/10)) {
		pair, err := k.Client(p.name)
		if err != nil {
			t.Fatal(err)
		}
		p.leaf = pair.Cert
	}
}

// verify verifies a certificate against a pool at a time, for any usage.
func verify(leaf *x509.Certificate, pool *x509.CertPool, now time.Time) error {
	_, err := leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// TestCARotation lets 19 years pass, twenty days at a time, and checks that a peer that gets each bundle within ten months always
// trusts the server and is trusted by it.
func TestCARotation(t *testing.T) {
	dir, now := t.TempDir(), epoch
	o := testOptions
	o.Now = func() time.Time { return now }
	k := mustEnsure(t, dir, o)
	peers := []*trustingPeer{{name: "quick"}, {name: "slow", lag: 300 * 24 * time.Hour}}
	var notices []string
	signers, proxies := []*x509.Certificate{k.CA().Cert}, []*x509.Certificate{k.FrontProxyCA().Cert}
	for ; now.Before(epoch.Add(19 * year)); now = now.Add(20 * 24 * time.Hour) {
		if _, err := k.Rotate(); err != nil {
			t.Fatalf("year %.2f: %v", now.Sub(epoch).Hours()/24/365, err)
		}
		for _, n := range k.Notices() {
			notices = append(notices, n.Text)
			if n.Urgent {
				t.Errorf("year %.2f: %s", now.Sub(epoch).Hours()/24/365, n.Text)
			}
		}
		if last := signers[len(signers)-1]; !last.Equal(k.CA().Cert) {
			signers = append(signers, k.CA().Cert)
		}
		if last := proxies[len(proxies)-1]; !last.Equal(k.FrontProxyCA().Cert) {
			proxies = append(proxies, k.FrontProxyCA().Cert)
		}
		for _, p := range peers {
			p.update(t, k, now)
			for what, err := range map[string]error{
				"trust the server":            verify(k.Serving().Cert, p.bundle, now),
				"trust the server's requests": verify(k.KubeletClient().Cert, p.bundle, now),
				"have a trusted certificate":  verify(p.leaf, k.CA().Pool, now),
			} {
				if err != nil {
					t.Fatalf("year %.2f: the %s peer does not %s: %v", now.Sub(epoch).Hours()/24/365, p.name, what, err)
				}
			}
		}
		if err := verify(k.FrontProxyClient().Cert, k.FrontProxyCA().Pool, now); err != nil {
			t.Fatal(err)
		}
	}
	if len(signers) != 3 || len(proxies) != 3 {
		t.Errorf("%d authorities and %d of front proxies have signed, want 3 each", len(signers), len(proxies))
	}
	// Each of the three CAs is rotated twice, in three steps: a successor is created, it signs, and the old one is dropped.
	if len(notices) != 2*3*3 {
		t.Errorf("the notices are:\n%s", strings.Join(notices, "\n"))
	}
	if got := fileNames(t, dir); slices.Contains(got, "ca-next.key") || slices.Contains(got, "ca.key.old") {
		t.Errorf("the files are %v", got)
	}
	for _, name := range fileNames(t, dir) {
		if info, err := os.Stat(filepath.Join(dir, name)); strings.HasSuffix(name, ".key") && (err != nil || info.Mode().Perm() != 0o600) {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
}

func fileNames(t *testing.T, dir string) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(snapshot(t, dir)))
}

// TestExpiredCA loads a folder whose CAs have expired: all are replaced, and the former files are kept.
func TestExpiredCA(t *testing.T) {
	dir := t.TempDir()
	mustEnsure(t, dir, at(testOptions, epoch))
	before := snapshot(t, dir)
	late := epoch.Add(11 * year)
	k := mustEnsure(t, dir, at(testOptions, late))
	for _, leaf := range []*Pair{k.Serving(), k.Admin(), k.KubeletClient()} {
		if err := verify(leaf.Cert, k.CA().Pool, late); err != nil {
			t.Error(err)
		}
	}
	after := snapshot(t, dir)
	for _, name := range []string{"ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "kubelet-ca.crt", "kubelet-ca.key"} {
		if after[name] == before[name] || after[name+".old"] != before[name] {
			t.Errorf("%s is not new, or the former one is not kept", name)
		}
		if info, err := os.Stat(filepath.Join(dir, name+".old")); strings.HasSuffix(name, ".key") &&
			(err != nil || info.Mode().Perm() != 0o600) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, hasNextKey := after["ca-next.key"]; hasNextKey || strings.Count(after["ca.crt"], "BEGIN") != 1 {
		t.Errorf("there is more than a new authority: %v\n%s", fileNames(t, dir), after["ca.crt"])
	}
	if len(k.Notices()) != 3 || !k.Notices()[0].Urgent {
		t.Fatalf("news: %v", k.Notices())
	}
	for _, want := range []string{"expired on 2039-12-30", "Copy admin.kubeconfig", "Nodes on this machine are taken over",
		"must join again with a token", "ca.key.old"} {
		if text := k.Notices()[0].Text; !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
	if k := mustEnsure(t, dir, at(testOptions, late)); len(k.Notices()) != 0 || changedFiles(after, snapshot(t, dir)) != nil {
		t.Error("the second start makes another one")
	}
}

// TestOperatorCA uses the CA of an operator until it expires: proa warns, and never replaces it.
func TestOperatorCA(t *testing.T) {
	dir := t.TempDir()
	key, data, err := newKeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	cert := operatorCA(t, key, epoch, epoch.Add(5*year))
	if err := firstError(os.WriteFile(dir+"/ca.crt", encodeCert(cert), 0o644), os.WriteFile(dir+"/ca.key", data, 0o600)); err != nil {
		t.Fatal(err)
	}
	mustEnsure(t, dir, at(testOptions, epoch.Add(year)))
	k := mustEnsure(t, dir, at(testOptions, epoch.Add(4*year+time.Hour)))
	if n := k.Notices(); len(n) != 1 || !n[0].Urgent || !strings.Contains(n[0].Text, "It was not made by proa") {
		t.Errorf("news: %v", n)
	}
	if got := snapshot(t, dir)["ca.crt"]; got != string(encodeCert(cert)) {
		t.Error("the bundle of the operator has changed")
	}
	_, err = Ensure(dir, at(testOptions, epoch.Add(6*year)))
	if err == nil || !strings.Contains(err.Error(), "ca.crt expired on 2034-12-31; check the clock") {
		t.Errorf("expired: %v", err)
	}
	if got := snapshot(t, dir)["ca.crt"]; got != string(encodeCert(cert)) {
		t.Error("an expired CA of the operator was replaced")
	}
}

// TestCrashDuringCARotation simulates a crash after each file that a step of the rotation writes. The next start must have the same
// result: a CA that signs and has its key, and a bundle that still has the CA of before.
func TestCrashDuringCARotation(t *testing.T) {
	for _, tt := range []struct {
		name       string
		years      []float64 // when the folder is loaded; the last one is interrupted
		certs      int       // in the bundle
		hasNextKey bool      // the key of a successor exists
	}{
		{"successor", []float64{0, 8.1}, 2, true},
		{"hand on", []float64{0, 8.1, 9.2}, 2, false},
		{"drop", []float64{0, 8.1, 9.2, 10.2}, 1, false},
		{"successor not used in time", []float64{0, 8.1, 10.2}, 1, false},
		{"expired", []float64{0, 11}, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base := t.TempDir()
			var k *PKI
			for _, y := range tt.years[:len(tt.years)-1] {
				k = mustEnsure(t, base, at(testOptions, epoch.Add(time.Duration(y*float64(year)))))
			}
			for done, more := 0, true; more; done++ {
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(base)); err != nil {
					t.Fatal(err)
				}
				now := epoch.Add(time.Duration(tt.years[len(tt.years)-1] * float64(year)))
				more = ensureInterrupted(t, dir, at(testOptions, now), done)
				after := mustEnsure(t, dir, at(testOptions, now))
				if err := verify(after.Serving().Cert, after.CA().Pool, now); err != nil {
					t.Errorf("after %d files: %v", done, err)
				}
				if tt.name != "expired" {
					if err := verify(after.Serving().Cert, k.CA().Pool, now); err != nil {
						t.Errorf("after %d files, with the bundle from before: %v", done, err)
					}
				}
				certs, err := DecodeCerts(after.CA().PEM)
				if err != nil || len(certs) != tt.certs || !samePublicKey(certs[0], after.CA().Key) {
					t.Errorf("after %d files there are %d authorities, %v", done, len(certs), err)
				}
				files := snapshot(t, dir)
				if _, hasNextKey := files["ca-next.key"]; hasNextKey != tt.hasNextKey || files["ca.crt"] != string(after.CA().PEM) {
					t.Errorf("after %d files: %v", done, fileNames(t, dir))
				}
				if pem, err := decodeKey([]byte(files["ca.key"])); err != nil || !samePublicKey(certs[0], pem) {
					t.Errorf("after %d files ca.key is of another authority: %v", done, err)
				}
			}
		})
	}
}

// ensureInterrupted loads a folder and stops after done files were written. It returns whether there are more files to write.
func ensureInterrupted(t *testing.T, dir string, o Options, done int) bool {
	t.Helper()
	f, err := openFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if _, err := f.update(o); err != nil {
		t.Fatal(err)
	}
	for range min(done, len(f.staged)) {
		if err := f.staged[0].commit(); err != nil {
			t.Fatal(err)
		}
		f.staged = f.staged[1:]
	}
	return len(f.staged) > 0
}

// TestCARotationOfSharedFolder checks that servers that share a store use the successor whose key an operator provides, so that all
// of them have the same one.
func TestCARotationOfSharedFolder(t *testing.T) {
	dir := t.TempDir()
	o := at(testOptions, epoch)
	o.Shared = true
	mustEnsure(t, dir, o)
	o = at(o, epoch.Add(8*year+time.Hour))
	k := mustEnsure(t, dir, o)
	if n := k.Notices(); len(n) != 3 || !n[0].Urgent || !strings.Contains(n[0].Text, "put a new private key into ca-next.key") {
		t.Fatalf("news: %v", n)
	}
	_, data, err := newKeyPEM()
	if err == nil {
		err = os.WriteFile(dir+"/ca-next.key", data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	k = mustEnsure(t, dir, o)
	if n := bytes.Count(k.CA().PEM, []byte("BEGIN")); n != 2 {
		t.Errorf("%d authorities in the bundle, want 2", n)
	}
	if got := fmt.Sprint(k.Notices()); !strings.Contains(got, "signs from 2038-12-30 on") {
		t.Errorf("news: %s", got)
	}
}
