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

// year is what the lives of certificates are counted in.
const year = 365 * 24 * time.Hour

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func years(t *testing.T, text string) time.Time {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return epoch.Add(time.Duration(n * float64(year)))
}

// foreign is an authority that an operator provides.
func foreign(t *testing.T, key crypto.Signer, from, to time.Time) *x509.Certificate {
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
					h.certs = append(h.certs, authorityOf(t, key(words[0]), words[0], years(t, words[1]), years(t, words[2])))
				}
			case words[0] == "key":
				h.key = key(words[1])
				if len(words) == 4 {
					h.next = key(words[3])
				}
			case words[0] == "shared":
				h.shared = true
			case words[0] == "year":
				now = years(t, words[1])
			default:
				t.Fatalf("what is %q?", line)
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

// authorityOf makes the authority of a key: one of proa's own, or, if its name is in lower case, one of an operator.
func authorityOf(t *testing.T, key crypto.Signer, name string, from, to time.Time) *x509.Certificate {
	t.Helper()
	if strings.ToLower(name) == name {
		return foreign(t, key, from, to)
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

// peer is a process on another machine: the bundle it trusts, and the certificate that it shows.
type peer struct {
	name   string
	bundle *x509.CertPool
	// lag is how late it gets to know bundles, and behind those that it has not seen yet.
	lag    time.Duration
	behind []seen
	leaf   *x509.Certificate
}

type seen struct {
	at     time.Time
	bundle *x509.CertPool
}

// look lets time pass for the peer: it takes the bundles that have reached it, and renews its certificate when nine tenths of its
// life are over.
func (p *peer) look(t *testing.T, k *PKI, now time.Time) {
	t.Helper()
	if n := len(p.behind); n == 0 || p.behind[n-1].bundle != k.CA().Pool {
		p.behind = append(p.behind, seen{now, k.CA().Pool})
	}
	for len(p.behind) > 0 && (p.bundle == nil || now.Sub(p.behind[0].at) >= p.lag) {
		p.bundle, p.behind = p.behind[0].bundle, p.behind[1:]
	}
	if p.leaf == nil || now.After(p.leaf.NotBefore.Add(p.leaf.NotAfter.Sub(p.leaf.NotBefore)*9/10)) {
		pair, err := k.Client(p.name)
		if err != nil {
			t.Fatal(err)
		}
		p.leaf = pair.Cert
	}
}

func vouched(leaf *x509.Certificate, by *x509.CertPool, now time.Time) error {
	_, err := leaf.Verify(x509.VerifyOptions{Roots: by, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// TestAuthoritiesSucceed walks through 19 years, twenty days at a time: whoever gets to know a bundle within ten months
// believes the server, and is believed, all the time.
func TestAuthoritiesSucceed(t *testing.T) {
	dir, now := t.TempDir(), epoch
	o := testOptions
	o.Now = func() time.Time { return now }
	k := ensure(t, dir, o)
	peers := []*peer{{name: "quick"}, {name: "slow", lag: 300 * 24 * time.Hour}}
	var told []string
	signers, proxies := []*x509.Certificate{k.CA().Cert}, []*x509.Certificate{k.FrontProxyCA().Cert}
	for ; now.Before(epoch.Add(19 * year)); now = now.Add(20 * 24 * time.Hour) {
		if _, err := k.Rotate(); err != nil {
			t.Fatalf("year %.2f: %v", now.Sub(epoch).Hours()/24/365, err)
		}
		for _, n := range k.Notices() {
			told = append(told, n.Text)
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
			p.look(t, k, now)
			for what, err := range map[string]error{
				"believe the server":            vouched(k.Serving().Cert, p.bundle, now),
				"believe the server's requests": vouched(k.KubeletClient().Cert, p.bundle, now),
				"be believed":                   vouched(p.leaf, k.CA().Pool, now),
			} {
				if err != nil {
					t.Fatalf("year %.2f: the %s one does not %s: %v", now.Sub(epoch).Hours()/24/365, p.name, what, err)
				}
			}
		}
		if err := vouched(k.FrontProxyClient().Cert, k.FrontProxyCA().Pool, now); err != nil {
			t.Fatal(err)
		}
	}
	if len(signers) != 3 || len(proxies) != 3 {
		t.Errorf("%d authorities and %d of front proxies have signed, want 3 each", len(signers), len(proxies))
	}
	// Twice each of the three gets a successor, hands on, and goes.
	if len(told) != 2*3*3 {
		t.Errorf("told:\n%s", strings.Join(told, "\n"))
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

// TestExpiredAuthority starts with a folder that was not used for too long.
func TestExpiredAuthority(t *testing.T) {
	dir := t.TempDir()
	ensure(t, dir, at(testOptions, epoch))
	before := snapshot(t, dir)
	late := epoch.Add(11 * year)
	k := ensure(t, dir, at(testOptions, late))
	for _, leaf := range []*Pair{k.Serving(), k.Admin(), k.KubeletClient()} {
		if err := vouched(leaf.Cert, k.CA().Pool, late); err != nil {
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
	if _, waits := after["ca-next.key"]; waits || strings.Count(after["ca.crt"], "BEGIN") != 1 {
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
	if k := ensure(t, dir, at(testOptions, late)); len(k.Notices()) != 0 || changed(after, snapshot(t, dir)) != nil {
		t.Error("the second start makes another one")
	}
}

// TestBroughtAuthority uses an authority that an operator has provided until its end.
func TestBroughtAuthority(t *testing.T) {
	dir := t.TempDir()
	key, data, err := newKeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	cert := foreign(t, key, epoch, epoch.Add(5*year))
	if err := first(os.WriteFile(dir+"/ca.crt", encodeCert(cert), 0o644), os.WriteFile(dir+"/ca.key", data, 0o600)); err != nil {
		t.Fatal(err)
	}
	ensure(t, dir, at(testOptions, epoch.Add(year)))
	k := ensure(t, dir, at(testOptions, epoch.Add(4*year+time.Hour)))
	if n := k.Notices(); len(n) != 1 || !n[0].Urgent || !strings.Contains(n[0].Text, "It was not made by proa") {
		t.Errorf("news: %v", n)
	}
	if got := snapshot(t, dir)["ca.crt"]; got != string(encodeCert(cert)) {
		t.Error("the bundle of somebody else has changed")
	}
	_, err = Ensure(dir, at(testOptions, epoch.Add(6*year)))
	if err == nil || !strings.Contains(err.Error(), "ca.crt expired on 2034-12-31; check the clock") {
		t.Errorf("expired: %v", err)
	}
	if got := snapshot(t, dir)["ca.crt"]; got != string(encodeCert(cert)) {
		t.Error("an expired authority of somebody else was replaced")
	}
}

// TestCrashDuringSuccession ends the process after each file that a step puts in place. The next start must come to the same: one
// that signs and has its key, and nobody who was believed before is forgotten.
func TestCrashDuringSuccession(t *testing.T) {
	for _, tt := range []struct {
		name  string
		years []float64 // when the folder is loaded; the last one is interrupted
		certs int       // in the bundle
		waits bool      // a successor's key
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
				k = ensure(t, base, at(testOptions, epoch.Add(time.Duration(y*float64(year)))))
			}
			for done, more := 0, true; more; done++ {
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(base)); err != nil {
					t.Fatal(err)
				}
				now := epoch.Add(time.Duration(tt.years[len(tt.years)-1] * float64(year)))
				more = interrupt(t, dir, at(testOptions, now), done)
				after := ensure(t, dir, at(testOptions, now))
				if err := vouched(after.Serving().Cert, after.CA().Pool, now); err != nil {
					t.Errorf("after %d files: %v", done, err)
				}
				if tt.name != "expired" {
					if err := vouched(after.Serving().Cert, k.CA().Pool, now); err != nil {
						t.Errorf("after %d files, with the bundle from before: %v", done, err)
					}
				}
				certs, err := DecodeCerts(after.CA().PEM)
				if err != nil || len(certs) != tt.certs || !samePublicKey(certs[0], after.CA().Key) {
					t.Errorf("after %d files there are %d authorities, %v", done, len(certs), err)
				}
				files := snapshot(t, dir)
				if _, waits := files["ca-next.key"]; waits != tt.waits || files["ca.crt"] != string(after.CA().PEM) {
					t.Errorf("after %d files: %v", done, fileNames(t, dir))
				}
				if pem, err := decodeKey([]byte(files["ca.key"])); err != nil || !samePublicKey(certs[0], pem) {
					t.Errorf("after %d files ca.key is of another authority: %v", done, err)
				}
			}
		})
	}
}

// interrupt loads a folder and ends after some files are in place. It returns whether there would have been more.
func interrupt(t *testing.T, dir string, o Options, done int) bool {
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

// TestSharedFolder lets two servers of a cluster have the same successor.
func TestSharedFolder(t *testing.T) {
	dir := t.TempDir()
	o := at(testOptions, epoch)
	o.Shared = true
	ensure(t, dir, o)
	o = at(o, epoch.Add(8*year+time.Hour))
	k := ensure(t, dir, o)
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
	k = ensure(t, dir, o)
	if n := bytes.Count(k.CA().PEM, []byte("BEGIN")); n != 2 {
		t.Errorf("%d authorities in the bundle, want 2", n)
	}
	if got := fmt.Sprint(k.Notices()); !strings.Contains(got, "signs from 2038-12-30 on") {
		t.Errorf("news: %s", got)
	}
}
