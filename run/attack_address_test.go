package run_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/client/remote"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/nodeaddress"
	"proa.dev/node/nodestatus"
	"proa.dev/proatest"
	"proa.dev/run"
	"proa.dev/run/bootstraproles"
)

// joined is a node that has joined a cluster with a bootstrap token, over HTTPS.
type joined struct {
	client.Client
	t       *testing.T
	cluster *proatest.Cluster
	cert    *nodestatus.Certificate
}

// join takes a node into the cluster with nothing but a token.
func join(t *testing.T, c *proatest.Cluster, name string) *joined {
	t.Helper()
	_, err := c.Client.Create(t.Context(), gr.Secrets, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"}, Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
			"auth-extra-groups": []byte(bootstraproles.JoinGroup),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	open := func(config remote.Config) *remote.Client {
		config.URL, config.Agent, config.Log = c.Config.Host, "test", slog.New(slog.DiscardHandler)
		out, err := remote.New(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(out.Close)
		return out
	}
	believe := &tls.Config{RootCAs: c.Server.CA().Pool, MinVersion: tls.VersionTLS12}
	token := open(remote.Config{TLS: believe, Token: func() (string, error) { return "abcdef.0123456789abcdef", nil }})
	j := &joined{t: t, cluster: c}
	j.cert = &nodestatus.Certificate{
		File: filepath.Join(t.TempDir(), "client.pem"), Log: slog.New(slog.DiscardHandler),
		Wanted: func() *x509.CertificateRequest { return nodestatus.ClientRequest(name) },
		Issue:  nodestatus.RequestCertificates(func() client.Client { return token }, certificatesv1.KubeAPIServerClientKubeletSignerName),
	}
	if err := j.cert.Load(); err != nil {
		t.Fatal(err)
	}
	if err := j.cert.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	mine := believe.Clone()
	mine.GetClientCertificate = j.cert.Present
	j.Client = open(remote.Config{TLS: mine})
	return j
}

// claim writes addresses into the status of the node.
func (j *joined) claim(name string, addresses ...string) error {
	j.t.Helper()
	return change(j.t, j.Client, name, "status", func(n *corev1.Node) { n.Status.Addresses = nodeAddresses(addresses) })
}

// change changes a Node, with a retry if a controller has written it meanwhile.
func change(t *testing.T, as client.Client, name, sub string, do func(*corev1.Node)) error {
	t.Helper()
	for {
		o, err := as.Get(t.Context(), gr.Nodes, "", name, "")
		if err != nil {
			t.Fatal(err)
		}
		n := o.DeepCopyObject().(*corev1.Node)
		do(n)
		if _, err = as.Update(t.Context(), gr.Nodes, n, sub); !apierrors.IsConflict(err) {
			return err
		}
	}
}

func nodeAddresses(addresses []string) (out []corev1.NodeAddress) {
	for _, a := range addresses {
		kind := corev1.NodeHostName
		if net.ParseIP(a) != nil {
			kind = corev1.NodeInternalIP
		}
		out = append(out, corev1.NodeAddress{Type: kind, Address: a})
	}
	return out
}

// serving asks for a certificate to serve with.
func (j *joined) serving(ctx context.Context, name string, addresses ...string) (*nodestatus.Certificate, error) {
	want := &x509.CertificateRequest{Subject: nodestatus.ClientRequest(name).Subject}
	for _, a := range addresses {
		if ip := net.ParseIP(a); ip != nil {
			want.IPAddresses = append(want.IPAddresses, ip)
		} else {
			want.DNSNames = append(want.DNSNames, a)
		}
	}
	cert := &nodestatus.Certificate{
		File: filepath.Join(j.t.TempDir(), "serving.pem"), Log: slog.New(slog.DiscardHandler),
		Wanted: func() *x509.CertificateRequest { return want },
		Issue:  nodestatus.RequestCertificates(func() client.Client { return j.Client }, certificatesv1.KubeletServingSignerName),
	}
	if err := cert.Load(); err != nil {
		return nil, err
	}
	return cert, cert.Renew(ctx)
}

// ownAddress is an address of this machine that others could reach.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		if p, err := netip.ParsePrefix(x.String()); err == nil && p.Addr().IsGlobalUnicast() && p.Addr().Is4() &&
			!netip.MustParsePrefix("10.244.0.0/16").Contains(p.Addr()) {
			return p.Addr().String()
		}
	}
	t.Skip("this machine has no address but loopback")
	return ""
}

// TestNodeIsNotBelievedAboutItsAddresses joins a node with a bootstrap token, and lets it say that it is the API server, a Service,
// another node, a Pod, and a stranger: it is refused each time, gets no certificate for it, and none that clients of the API trust.
func TestNodeIsNotBelievedAboutItsAddresses(t *testing.T) {
	own := ownAddress(t)
	c := proatest.Start(t, proatest.Memory())
	if _, err := c.Client.Create(t.Context(), gr.Nodes,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"},
			Status: corev1.NodeStatus{Addresses: nodeAddresses([]string{"192.0.2.50"})}}); err != nil {
		t.Fatal(err)
	}
	evil := join(t, c, "evil")
	bad := []string{
		"kubernetes.default.svc", "kubernetes", "localhost", "other", "10.96.0.1", "127.0.0.1", "192.0.2.50", "10.244.1.5",
		"169.254.169.254", "203.0.113.80",
	}
	for _, address := range bad {
		_, err := evil.Create(t.Context(), gr.Nodes,
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "evil"},
				Status: corev1.NodeStatus{Addresses: nodeAddresses([]string{address})}})
		if !apierrors.IsForbidden(err) {
			t.Errorf("the node is created with the address %s: %v", address, err)
		}
	}
	if _, err := evil.Create(t.Context(), gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for _, address := range bad {
		if err := evil.claim("evil", "evil", address); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), address) {
			t.Errorf("the node has the address %s: %v", address, err)
		}
	}
	evil.askInVain(own, bad)
}

// askInVain asks for certificates for addresses that the node may not have, and for its own, and looks who was answered.
func (j *joined) askInVain(own string, bad []string) {
	j.t.Helper()
	ctx, stop := context.WithCancel(j.t.Context())
	var waiting []chan error
	for _, address := range bad {
		end := make(chan error, 1)
		waiting = append(waiting, end)
		go func() {
			_, err := j.serving(ctx, "evil", address)
			end <- err
		}()
	}
	// What the server sees is what the node may have. When that is answered, the others were looked at, too.
	if err := j.claim("evil", "evil", own); err != nil {
		j.t.Fatal(err)
	}
	for range 3 {
		cert, err := j.serving(ctx, "evil", "evil", own)
		if err != nil {
			j.t.Fatal(err)
		}
		j.trustedByNobody(cert)
	}
	stop()
	for i, end := range waiting {
		if err := <-end; err == nil {
			j.t.Errorf("the node gets a certificate for %s", bad[i])
		}
	}
}

// trustedByNobody uses the certificate that a node serves with against the API and its clients.
func (j *joined) trustedByNobody(cert *nodestatus.Certificate) {
	j.t.Helper()
	leaf, pool := cert.Current().Leaf, x509.NewCertPool()
	pool.AppendCertsFromPEM(j.cluster.Config.CAData)
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
		j.t.Error("clients of the API trust the certificate that a node serves with")
	}
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, GetClientCertificate: cert.Present,
		MinVersion: tls.VersionTLS12}}}
	req, err := http.NewRequestWithContext(j.t.Context(), http.MethodGet, j.cluster.Config.Host+"/api/v1/nodes/evil", nil)
	if err != nil {
		j.t.Fatal(err)
	}
	resp, err := h.Do(req)
	if err != nil {
		return // the handshake has ended it
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		j.t.Errorf("the certificate that a node serves with is one of a client: %s", resp.Status)
	}
}

// TestAdministratorAllowsAddresses gives a node addresses that the server does not see: by annotation, and by range.
func TestAdministratorAllowsAddresses(t *testing.T) {
	own := ownAddress(t)
	c := proatest.Start(t, proatest.Memory(), func(c *run.Config) {
		c.NodeRanges = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("10.0.0.0/8")}
	})
	node := join(t, c, "a")
	if _, err := node.Create(t.Context(), gr.Nodes,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Status: corev1.NodeStatus{Addresses: nodeAddresses([]string{own, "198.51.100.7", "a"})}}); err != nil {
		t.Fatal(err)
	}
	annotate := func(as client.Client, word string) error {
		return change(t, as, "a", "", func(n *corev1.Node) { n.Annotations = map[string]string{nodeaddress.Annotation: word} })
	}
	if err := annotate(node, "203.0.113.80"); !apierrors.IsForbidden(err) {
		t.Errorf("a node allows itself an address: %v", err)
	}
	if err := annotate(c.Client, "203.0.113.80, 10.96.0.1, a.example"); err != nil {
		t.Fatal(err)
	}
	if err := node.claim("a", "203.0.113.80", "a", "a.example"); err != nil {
		t.Fatal(err)
	}
	if err := node.claim("a", "10.96.0.1"); !apierrors.IsForbidden(err) {
		t.Errorf("somebody allows a node the address of a Service: %v", err)
	}
	cert, err := node.serving(t.Context(), "a", "203.0.113.80", "a.example")
	if err != nil || cert.Current() == nil {
		t.Error("no certificate for what is allowed", err)
	}
	// An address stays when the word of the administrator is gone, as it does when a cluster gets this version.
	if err := annotate(c.Client, ""); err != nil {
		t.Fatal(err)
	}
	if err := node.claim("a", "203.0.113.80", "a"); err != nil {
		t.Error(err)
	}
	if err := node.claim("a", "a", "a.example"); !apierrors.IsForbidden(err) {
		t.Errorf("the node has a name that is neither stored nor allowed any more: %v", err)
	}
}
