package nodestatus_test

import (
	"context"
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/nodestatus"
	"proa.dev/proatest"
)

func loadCertificate(t *testing.T, file string, want func() *x509.CertificateRequest, by nodestatus.Issuer) *nodestatus.Certificate {
	t.Helper()
	c := &nodestatus.Certificate{File: file, Wanted: want, Issue: by, Log: slog.New(slog.DiscardHandler)}
	if err := c.Load(); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestJoin takes a node from a bootstrap token to both of its certificates.
func TestJoin(t *testing.T) {
	c := proatest.Start(t, proatest.Memory(), proatest.Alone(), anyAddress())
	if _, err := c.Client.Create(t.Context(), gr.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "join"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects:   []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:bootstrappers"}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client.Create(t.Context(), gr.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "approve"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient"},
		Subjects: []rbacv1.Subject{{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:bootstrappers"}},
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	token := c.Server.Client(&user.DefaultInfo{Name: "system:bootstrap:abcdef",
		Groups: []string{"system:bootstrappers", "system:authenticated"}})
	dir := t.TempDir()
	clientCert := loadCertificate(t, filepath.Join(dir, "client.pem"),
		func() *x509.CertificateRequest { return nodestatus.ClientRequest("a") },
		nodestatus.RequestCertificates(func() client.Client { return token }, certificatesv1.KubeAPIServerClientKubeletSignerName))
	if _, err := clientCert.Present(nil); err == nil {
		t.Error("a node without a certificate presents one")
	}
	// The permissions that were just given reach the authorizer a moment later.
	err := clientCert.Renew(ctx)
	for ; apierrors.IsForbidden(err) && ctx.Err() == nil; err = clientCert.Renew(ctx) {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
	leaf := clientCert.Current().Leaf
	if leaf.Subject.CommonName != "system:node:a" || leaf.Subject.Organization[0] != "system:nodes" ||
		leaf.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth {
		t.Errorf("the certificate is for %v", leaf.Subject)
	}
	if st, err := os.Stat(clientCert.File); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	// After a restart it is loaded.
	if got := loadCertificate(t, clientCert.File, clientCert.Wanted, nil).Current(); got == nil || !got.Leaf.Equal(leaf) {
		t.Error("the certificate is not stored")
	}

	// The node serves under the addresses that its Node has, and under no others.
	node := asNode(c, "a")
	addresses := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: "a"}}
	if _, err := node.Create(ctx, gr.Nodes,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: corev1.NodeStatus{Addresses: addresses}}); err != nil {
		t.Fatal(err)
	}
	serve := nodestatus.RequestCertificates(func() client.Client { return node }, certificatesv1.KubeletServingSignerName)
	servingCert := loadCertificate(t, filepath.Join(dir, "serving.pem"),
		func() *x509.CertificateRequest { return nodestatus.ServingRequest("a", addresses) }, serve)
	if err := servingCert.Renew(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := servingCert.Current().Leaf.Verify(x509.VerifyOptions{Roots: c.Server.CA().Pool}); err == nil {
		t.Error("clients of the API trust the serving certificate of a node")
	}
	if leaf := servingCert.Current().Leaf; !leaf.IPAddresses[0].Equal(net.ParseIP("10.0.0.1")) || leaf.DNSNames[0] != "a" {
		t.Errorf("the certificate is for %v %v", leaf.IPAddresses, leaf.DNSNames)
	}
	foreign := loadCertificate(t, filepath.Join(dir, "foreign.pem"), func() *x509.CertificateRequest {
		return nodestatus.ServingRequest("a", []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.2"}})
	}, serve)
	// On a busy machine the first limits may pass before the request is made; a later attempt finds the same key and goes on.
	for limit := 3 * time.Second; ; limit *= 2 {
		short, stop := context.WithTimeout(ctx, limit)
		err = foreign.Renew(short)
		early := errors.Is(short.Err(), context.DeadlineExceeded) && ctx.Err() == nil
		stop()
		if err == nil || !early || strings.Contains(err.Error(), "was not answered") {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "was not answered") {
		t.Errorf("an address of another node: %v", err)
	}
	// The key of an unanswered request is kept, and that of a refused one is not.
	if _, err := os.Stat(foreign.File + ".key"); err != nil {
		t.Error(err)
	}
	deny(t, c.Client)
	if err := foreign.Renew(ctx); err == nil || !strings.Contains(err.Error(), "is denied, reason: No, message: not yours") {
		t.Errorf("a denied request: %v", err)
	}
	if _, err := os.Stat(foreign.File + ".key"); !errors.Is(err, os.ErrNotExist) {
		t.Error("the key of a denied request is kept")
	}
	c.Stop()
}

// deny denies the pending request.
func deny(t *testing.T, c client.Client) {
	t.Helper()
	view, err := c.View(t.Context(), gr.CertificateSigningRequests)
	if err != nil {
		t.Fatal(err)
	}
	if err := view.Reach(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for o := range view.List("") {
		r := o.DeepCopyObject().(*certificatesv1.CertificateSigningRequest)
		if len(r.Status.Conditions) > 0 {
			continue
		}
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "No", Message: "not yours"},
		}
		if _, err := c.Update(t.Context(), gr.CertificateSigningRequests, r, "approval"); err != nil {
			t.Fatal(err)
		}
	}
}
