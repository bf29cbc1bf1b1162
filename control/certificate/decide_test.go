package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"maps"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/lib/nodeaddress"
)

// requestCase is a case of testdata/decide.txt. Durations are ages, except Issued, which is how long the certificate is still
// valid.
type requestCase struct {
	Name, Signer, User, Age, Issued, CN string
	O, DNS, Mail, IP, URI, Groups       []string
	Usages                              []certificatesv1.KeyUsage
	Conditions                          map[certificatesv1.RequestConditionType]string
	Garbage                             bool
	Want                                string
}

func TestDecide(t *testing.T) {
	text, err := os.ReadFile("testdata/decide.txt")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ca := authority(t, now.Add(24*time.Hour))
	ca.now = now
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		g := requestCase{CN: "system:node:a", O: []string{"system:nodes"}, Age: "0s",
			Usages: []certificatesv1.KeyUsage{"client auth", "digital signature"}}
		if err := yaml.UnmarshalStrict([]byte(doc), &g); err != nil {
			t.Fatalf("%v in:\n%s", err, doc)
		}
		t.Run(g.Name, func(t *testing.T) {
			if got := decide(g.request(t, ca), now).String(); got != g.Want {
				t.Errorf("got  %s\nwant %s", got, g.Want)
			}
		})
	}
}

func (p plan) String() string {
	var words []string
	switch {
	case p.remove:
		return "remove"
	case p.invalid != "":
		words = append(words, "invalid", p.invalid)
	case p.sign != nil:
		words = append(words, "sign")
	case len(p.permissions) > 0:
		words = append(words, "ask")
		for _, a := range p.permissions {
			words = append(words, a.permission)
		}
	case p.node != "":
		words = append(words, "serving", p.node)
	default:
		words = append(words, "nothing")
	}
	return strings.Join(words, " ") + "; again " + p.again.String()
}

func (g *requestCase) request(t *testing.T, ca issuer) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	ago := func(s string) metav1.Time { return metav1.NewTime(ca.now.Add(-parseDuration(t, s))) }
	r := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "r", CreationTimestamp: ago(g.Age)},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: g.Signer, Username: g.User, Groups: g.Groups,
			Usages: g.Usages},
	}
	for _, c := range slices.Sorted(maps.Keys(g.Conditions)) {
		r.Status.Conditions = append(r.Status.Conditions,
			certificatesv1.CertificateSigningRequestCondition{Type: c, Status: corev1.ConditionTrue, LastUpdateTime: ago(g.Conditions[c])})
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: g.CN, Organization: g.O}, DNSNames: g.DNS, EmailAddresses: g.Mail}
	for _, ip := range g.IP {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	for _, u := range g.URI {
		uri, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, uri)
	}
	r.Spec.Request = requestPEM(t, template)
	if g.Garbage {
		r.Spec.Request = []byte("garbage")
	}
	if g.Issued != "" {
		parsed, err := parse(r.Spec.Request)
		if err != nil {
			t.Fatal(err)
		}
		ca.cert = &x509.Certificate{NotAfter: ca.now.Add(parseDuration(t, g.Issued)), Subject: ca.cert.Subject}
		at := ca
		at.now = ca.now.Add(-time.Hour)
		if r.Status.Certificate, err = sign(parsed, g.Usages, 10*time.Hour, at); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func parseDuration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func requestPEM(t *testing.T, template *x509.CertificateRequest) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// authority returns a certificate authority that is valid until a time.
func authority(t *testing.T, until time.Time) issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter: until,
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return issuer{cert: cert, key: key}
}

func TestOwnsNames(t *testing.T) {
	node := func(name string, addresses ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, a := range addresses {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Address: a})
		}
		return n
	}
	addresses := []string{"a.example", "10.0.0.1", "10.0.0.9", "b", "b.example", "kubernetes.default.svc", "localhost", "127.0.0.1",
		"10.96.0.1", "10.97.0.1", "10.244.0.7", "169.254.1.1"}
	all := []*corev1.Node{node("a", addresses...), node("b", "10.0.0.2", "10.0.0.9", "b.example")}
	reserved := withRanges(nodeaddress.Cluster{
		Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
	}, slices.Values([]*networkingv1.ServiceCIDR{{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.97.0.0/24"}}}}))
	for _, x := range []struct {
		dns, ip []string
		want    bool
	}{
		{[]string{"a.example"}, []string{"10.0.0.1"}, true},
		{[]string{"c.example"}, []string{"10.0.0.1"}, false},
		// Another node has this address, or this name.
		{[]string{"b.example"}, []string{"10.0.0.1"}, false},
		{[]string{"b"}, []string{"10.0.0.1"}, false},
		// Reserved names and addresses in the status of the Node.
		{[]string{"kubernetes.default.svc"}, []string{"10.0.0.1"}, false},
		{[]string{"localhost"}, []string{"10.0.0.1"}, false},
		{nil, []string{"127.0.0.1"}, false},
		{nil, []string{"10.96.0.1"}, false},
		{nil, []string{"10.97.0.1"}, false},
		{nil, []string{"10.244.0.7"}, false},
		{nil, []string{"169.254.1.1"}, false},
		{nil, []string{"10.0.0.1", "10.0.0.2"}, false},
		{nil, []string{"10.0.0.9"}, false}, // two nodes have it
	} {
		r := &x509.CertificateRequest{DNSNames: x.dns}
		for _, ip := range x.ip {
			r.IPAddresses = append(r.IPAddresses, net.ParseIP(ip))
		}
		if got := ownsNames(all[0], r, slices.Values(all), reserved); got != x.want {
			t.Errorf("%v %v: %v", x.dns, x.ip, got)
		}
	}
}
