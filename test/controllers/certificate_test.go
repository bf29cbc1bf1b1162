package controllers

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/control/certificate"
	"proa.dev/control/controltest"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

func TestCertificate(t *testing.T) {
	t.Parallel()
	controltest.Scripts(t, "../../control/certificate/testdata/scripts/*.txt",
		certificate.Controller(certificate.Config{CA: certificateAuthority(t)}))
}

// certificateAuthority returns a certificate authority that is valid in the virtual time of scripts.
func certificateAuthority(t *testing.T) func() (*x509.Certificate, crypto.Signer) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter: time.Date(2005, 1, 1, 0, 0, 0, 0, time.UTC), KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return func() (*x509.Certificate, crypto.Signer) { return cert, key }
}

// onlyController makes the controller under test the only one.
func onlyController(ctl control.Controller) proatest.Option {
	return func(c *run.Config) {
		c.FilterControllers = func([]control.Controller) []control.Controller { return []control.Controller{ctl} }
	}
}

// TestCertificatePermission checks the requestor, which scripts cannot choose: the request of a user without the permission for
// a node's certificate waits until the user has it.
func TestCertificatePermission(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), certificateAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir),
			onlyController(certificate.Controller(certificate.Config{CA: ca})))
		defer cluster.Stop()
		admin := cluster.Client
		grantCreate(t, admin, "creates", "certificatesigningrequests")
		settle()
		joiner := cluster.Server.Client(&user.DefaultInfo{Name: "joiner", Groups: []string{user.AllAuthenticated}})
		createRequest(t, joiner, "node", certificatesv1.KubeAPIServerClientKubeletSignerName,
			pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}})
		time.Sleep(time.Minute)
		if got := requestState(t, admin, "node"); got != "" {
			t.Errorf("a user without the permission got %s", got)
		}
		grantCreate(t, admin, "joins", "certificatesigningrequests/nodeclient")
		time.Sleep(2 * time.Minute)
		if got := requestState(t, admin, "node"); got != "Approved AutoApproved: Auto approving kubelet client certificate after SubjectAccessReview.; issued" {
			t.Errorf("a user with the permission got %q", got)
		}

		createRequest(t, joiner, "wrong", certificatesv1.KubeletServingSignerName, pkix.Name{CommonName: "system:node:a"})
		approveRequest(t, admin, "wrong")
		time.Sleep(time.Second)
		if got := requestState(t, admin, "wrong"); got != "Approved ByHand: ; Failed SignerValidationFailure: subject organization is not system:nodes" {
			t.Errorf("a request that the signer does not sign: %q", got)
		}
	})
}

func createRequest(t *testing.T, c client.Client, name, signer string, subject pkix.Name) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Create(t.Context(), gr.CertificateSigningRequests, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: signer, Usages: []certificatesv1.KeyUsage{"client auth", "digital signature"},
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func getRequest(t *testing.T, c client.Client, name string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	o, err := c.Get(t.Context(), gr.CertificateSigningRequests, "", name, "")
	if err != nil {
		t.Fatal(err)
	}
	return o.(*certificatesv1.CertificateSigningRequest)
}

func requestState(t *testing.T, c client.Client, name string) (out string) {
	t.Helper()
	r := getRequest(t, c, name)
	for i, d := range r.Status.Conditions {
		if i > 0 {
			out += "; "
		}
		out += string(d.Type) + " " + d.Reason + ": " + d.Message
	}
	if len(r.Status.Certificate) > 0 {
		out += "; issued"
	}
	return out
}

func approveRequest(t *testing.T, c client.Client, name string) {
	t.Helper()
	r := getRequest(t, c, name)
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "ByHand",
	})
	if _, err := c.Update(t.Context(), gr.CertificateSigningRequests, r, "approval"); err != nil {
		t.Fatal(err)
	}
}

// grantCreate grants the joining user the permission to create a resource.
func grantCreate(t *testing.T, c client.Client, name, resource string) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: name}
	_, err := c.Create(t.Context(), gr.ClusterRoles, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"create"}, APIGroups: []string{certificatesv1.GroupName}, Resources: []string{resource}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Create(t.Context(), gr.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "joiner"}},
	})
	if err != nil {
		t.Fatal(err)
	}
}
