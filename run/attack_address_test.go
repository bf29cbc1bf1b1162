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

// joinedAgent is the client of a node that has joined a cluster with a bootstrap token, over HTTPS.
type joinedAgent struct {
	client.Client
	t       *testing.T
	cluster *proatest.Cluster
	cert    *nodestatus.Certificate
}

// joinWithToken creates a bootstrap token, and joins a node to the cluster with it.
func joinWithToken(t *testing.T, c *proatest.Cluster, name string) *joinedAgent {
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
	trust := &tls.Config{RootCAs: c.Server.CA().Pool, MinVersion: tls.VersionTLS12}
	token := open(remote.Config{TLS: trust, Token: func() (string, error) { return "abcdef.0123456789abcdef", nil }})
	j := &joinedAgent{t: t, cluster: c}
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
	withCert := trust.Clone()
	withCert.GetClientCertificate = j.cert.Present
	j.Client = open(remote.Config{TLS: withCert})
	return j
}

// setAddresses writes addresses into the status of a Node.
func (j *joinedAgent) setAddresses(name string, addresses ...string) error {
	j.t.Helper()
	return updateNode(j.t, j.Client, name, "status", func(n *corev1.Node) { n.Status.Addresses = nodeAddresses(addresses) })
}

// updateNode changes a Node, with a retry if a controller has written it meanwhile.
func updateNode(t *testing.T, c client.Client, name, sub string, change func(*corev1.Node)) error {
	t.Helper()
	for {
		o, err := c.Get(t.Context(), gr.Nodes, "", name, "")
		if err != nil {
			t.Fatal(err)
		}
		n := o.DeepCopyObject().(*corev1.Node)
		change(n)
		if _, err = c.Update(t.Context(), gr.Nodes, n, sub); !apierrors.IsConflict(err) {
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

// requestServingCert requests a kubelet serving certificate for some addresses.
func (j *joinedAgent) requestServingCert(ctx context.Context, name string, addresses ...string) (*nodestatus.Certificate, error) {
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

// ownAddress returns an address of this machine that is neither loopback nor one that a cluster has added.
func ownAddress(t *testing.T) string {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		all, err := l.Addrs()
		if err != nil || l.Flags&net.FlagLoopback != 0 || strings.HasPrefix(l.Name, "proa") { // of another cluster on this machine
			continue
		}
		for _, x := range all {
			if p, err := netip.ParsePrefix(x.String()); err == nil && p.Addr().IsGlobalUnicast() && p.Addr().Is4() {
				return p.Addr().String()
			}
		}
	}
	t.Skip("this machine has no address but loopback")
	return ""
}

// TestForeignNodeAddressesAreRejected joins a node with a bootstrap token, and lets it claim the addresses and names of the API
// server, a Service, another node, a Pod, and some other machine. Each is rejected, the node gets no serving certificate for it,
// and the certificate that it does get is not trusted by clients of the API.
func TestForeignNodeAddressesAreRejected(t *testing.T) {
	own := ownAddress(t)
	c := proatest.Start(t, proatest.Memory())
	if _, err := c.Client.Create(t.Context(), gr.Nodes,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"},
			Status: corev1.NodeStatus{Addresses: nodeAddresses([]string{"192.0.2.50"})}}); err != nil {
		t.Fatal(err)
	}
	evil := joinWithToken(t, c, "evil")
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
		if err := evil.setAddresses("evil", "evil", address); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), address) {
			t.Errorf("the node has the address %s: %v", address, err)
		}
	}
	evil.requestForeignCerts(own, bad)
}

// requestForeignCerts requests serving certificates for addresses that the node must not have, and for its own, and checks
// that only the latter is issued.
func (j *joinedAgent) requestForeignCerts(own string, bad []string) {
	j.t.Helper()
	ctx, stop := context.WithCancel(j.t.Context())
	var waiting []chan error
	for _, address := range bad {
		end := make(chan error, 1)
		waiting = append(waiting, end)
		go func() {
			_, err := j.requestServingCert(ctx, "evil", address)
			end <- err
		}()
	}
	// The node may have the address from which it connects. When that certificate is issued, the other requests were handled, too.
	if err := j.setAddresses("evil", "evil", own); err != nil {
		j.t.Fatal(err)
	}
	for range 3 {
		cert, err := j.requestServingCert(ctx, "evil", "evil", own)
		if err != nil {
			j.t.Fatal(err)
		}
		j.checkNotTrusted(cert)
	}
	stop()
	for i, end := range waiting {
		if err := <-end; err == nil {
			j.t.Errorf("the node gets a certificate for %s", bad[i])
		}
	}
}

// checkNotTrusted checks that the serving certificate of a node is trusted neither by clients of the API nor, as a client
// certificate, by the API server.
func (j *joinedAgent) checkNotTrusted(cert *nodestatus.Certificate) {
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
		return // the handshake failed
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		j.t.Errorf("the certificate that a node serves with is one of a client: %s", resp.Status)
	}
}

// TestAdministratorAllowsNodeAddresses allows a node addresses other than the one from which it connects, by annotation and by
// range.
func TestAdministratorAllowsNodeAddresses(t *testing.T) {
	own := ownAddress(t)
	c := proatest.Start(t, proatest.Memory(), func(c *run.Config) {
		c.NodeRanges = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("10.0.0.0/8")}
	})
	node := joinWithToken(t, c, "a")
	if _, err := node.Create(t.Context(), gr.Nodes,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Status: corev1.NodeStatus{Addresses: nodeAddresses([]string{own, "198.51.100.7", "a"})}}); err != nil {
		t.Fatal(err)
	}
	annotate := func(c client.Client, allowed string) error {
		return updateNode(t, c, "a", "", func(n *corev1.Node) { n.Annotations = map[string]string{nodeaddress.Annotation: allowed} })
	}
	if err := annotate(node, "203.0.113.80"); !apierrors.IsForbidden(err) {
		t.Errorf("a node allows itself an address: %v", err)
	}
	if err := annotate(c.Client, "203.0.113.80, 10.96.0.1, a.example"); err != nil {
		t.Fatal(err)
	}
	if err := node.setAddresses("a", "203.0.113.80", "a", "a.example"); err != nil {
		t.Fatal(err)
	}
	if err := node.setAddresses("a", "10.96.0.1"); !apierrors.IsForbidden(err) {
		t.Errorf("an administrator can allow a node the address of a Service: %v", err)
	}
	cert, err := node.requestServingCert(t.Context(), "a", "203.0.113.80", "a.example")
	if err != nil || cert.Current() == nil {
		t.Error("no certificate for what is allowed", err)
	}
	// A stored address may stay when the annotation is removed, as it does in a cluster that is upgraded to this version.
	if err := annotate(c.Client, ""); err != nil {
		t.Fatal(err)
	}
	if err := node.setAddresses("a", "203.0.113.80", "a"); err != nil {
		t.Error(err)
	}
	if err := node.setAddresses("a", "a", "a.example"); !apierrors.IsForbidden(err) {
		t.Errorf("the node has a name that is neither stored nor allowed any more: %v", err)
	}
}
