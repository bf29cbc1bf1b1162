package self

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/proatest"
)

func keep(t *testing.T, file string, want func() *x509.CertificateRequest, by Issuer) *Certificate {
	t.Helper()
	c := &Certificate{File: file, Wanted: want, Issue: by, Log: slog.New(slog.DiscardHandler)}
	if err := c.Load(); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestJoin takes a node from a bootstrap token to both of its certificates.
func TestJoin(t *testing.T) {
	c := proatest.Start(t, proatest.Memory(), proatest.Alone())
	if _, err := c.Client.Create(t.Context(), gr.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "join"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects: []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:bootstrappers"}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client.Create(t.Context(), gr.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "approve"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient"},
		Subjects:   []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:bootstrappers"}},
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	token := c.Server.Client(&user.DefaultInfo{Name: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers", "system:authenticated"}})
	dir := t.TempDir()
	speaks := keep(t, filepath.Join(dir, "client.pem"), func() *x509.CertificateRequest { return ClientRequest("a") },
		Ask(func() client.Client { return token }, certificatesv1.KubeAPIServerClientKubeletSignerName))
	if _, err := speaks.Present(nil); err == nil {
		t.Error("a node without a certificate has one")
	}
	if err := speaks.Renew(ctx); err != nil {
		t.Fatal(err)
	}
	leaf := speaks.Current().Leaf
	if leaf.Subject.CommonName != "system:node:a" || leaf.Subject.Organization[0] != "system:nodes" || leaf.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth {
		t.Errorf("the certificate is for %v", leaf.Subject)
	}
	if st, err := os.Stat(speaks.File); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	// After a restart it is there.
	if got := keep(t, speaks.File, speaks.Wanted, nil).Current(); got == nil || !got.Leaf.Equal(leaf) {
		t.Error("the certificate is not stored")
	}

	// The node serves under the addresses that its Node has, and under no others.
	node := asNode(c, "a")
	addresses := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: "a"}}
	if _, err := node.Create(ctx, gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{Addresses: addresses}}); err != nil {
		t.Fatal(err)
	}
	serve := Ask(func() client.Client { return node }, certificatesv1.KubeletServingSignerName)
	serves := keep(t, filepath.Join(dir, "serving.pem"), func() *x509.CertificateRequest { return ServingRequest("a", addresses) }, serve)
	if err := serves.Renew(ctx); err != nil {
		t.Fatal(err)
	}
	if leaf := serves.Current().Leaf; !leaf.IPAddresses[0].Equal(net.ParseIP("10.0.0.1")) || leaf.DNSNames[0] != "a" {
		t.Errorf("the certificate is for %v %v", leaf.IPAddresses, leaf.DNSNames)
	}
	short, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	foreign := keep(t, filepath.Join(dir, "foreign.pem"), func() *x509.CertificateRequest {
		return ServingRequest("a", []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.2"}})
	}, serve)
	if err := foreign.Renew(short); err == nil || !strings.Contains(err.Error(), "was not answered") {
		t.Errorf("an address of somebody else: %v", err)
	}
	// The key of an unanswered request is kept, and that of a refused one is not.
	if _, err := os.Stat(foreign.File + ".key"); err != nil {
		t.Error(err)
	}
	deny(t, c.Client, foreign)
	if err := foreign.Renew(ctx); err == nil || !strings.Contains(err.Error(), "is denied, reason: No, message: not yours") {
		t.Errorf("a denied request: %v", err)
	}
	if _, err := os.Stat(foreign.File + ".key"); !errors.Is(err, os.ErrNotExist) {
		t.Error("the key of a denied request is kept")
	}
	c.Stop()
}

func deny(t *testing.T, c client.Client, of *Certificate) {
	t.Helper()
	key, err := of.pending()
	if err != nil {
		t.Fatal(err)
	}
	name, err := requestName(key.Public(), certificatesv1.KubeletServingSignerName)
	if err != nil {
		t.Fatal(err)
	}
	o, err := c.Get(t.Context(), gr.CertificateSigningRequests, "", name, "")
	if err != nil {
		t.Fatal(err)
	}
	r := o.(*certificatesv1.CertificateSigningRequest)
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "No", Message: "not yours",
	})
	if _, err := c.Update(t.Context(), gr.CertificateSigningRequests, r, "approval"); err != nil {
		t.Fatal(err)
	}
}

func TestRotation(t *testing.T) {
	begin := time.Unix(0, 0)
	leaf := &x509.Certificate{NotBefore: begin, NotAfter: begin.Add(100 * time.Hour)}
	for chance, want := range map[float64]time.Duration{0: 70 * time.Hour, 0.5: 80 * time.Hour, 1: 90 * time.Hour} {
		if got := rotation(leaf, chance).Sub(begin).Round(time.Second); got != want {
			t.Errorf("chance %v: after %s, want %s", chance, got, want)
		}
	}
}

func TestServingRequest(t *testing.T) {
	if r := ServingRequest("a", []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "a"}}); r != nil {
		t.Error("a request without an address")
	}
	r := ServingRequest("a", []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "10.0.0.3"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.2"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.2"},
		{Type: corev1.NodeInternalIP, Address: "rubbish"}, {Type: corev1.NodeExternalDNS, Address: "x.example"},
	})
	if len(r.IPAddresses) != 2 || len(r.DNSNames) != 1 || r.DNSNames[0] != "x.example" {
		t.Errorf("%v %v", r.IPAddresses, r.DNSNames)
	}
}

// TestRubbishOnDisk is about files that were broken.
func TestRubbishOnDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pem")
	for _, name := range []string{file, file + ".key"} {
		if err := os.WriteFile(name, []byte("rubbish"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := keep(t, file, func() *x509.CertificateRequest { return ClientRequest("a") }, func(context.Context, []byte, crypto.Signer) ([]byte, error) { return []byte("more"), nil })
	if c.Current() != nil {
		t.Error("rubbish is a certificate")
	}
	if err := c.Renew(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be used") {
		t.Error(err)
	}
}
