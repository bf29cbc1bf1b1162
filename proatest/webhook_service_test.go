package proatest_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionreviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

// certificateOf returns a self-signed certificate, with its bundle.
func certificateOf(t *testing.T, name string) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

// listenOnHostAddress listens at an address of this machine that is not loopback, because endpoints must not have loopback
// addresses.
func listenOnHostAddress(t *testing.T) (net.Listener, string) {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	// The source address of the default route comes first: others may belong to clusters on this machine, and go with them.
	if conn, err := (&net.Dialer{}).DialContext(t.Context(), "udp", "198.51.100.1:9"); err == nil { // UDP: no packet is sent
		own := conn.LocalAddr().(*net.UDPAddr).IP
		_ = conn.Close()
		addresses = append([]net.Addr{&net.IPNet{IP: own}}, addresses...)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(n.IP.String(), "0"))
			if err == nil {
				return l, n.IP.String()
			}
		}
	}
	t.Skip("this machine has no address but loopback")
	return nil, ""
}

// TestWebhookBehindService checks that a webhook behind a Service is found by its endpoints, and that its certificate must have the
// name of the Service.
func TestWebhookBehindService(t *testing.T) {
	l, address := listenOnHostAddress(t)
	certificate, bundle := certificateOf(t, "hook.default.svc")
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionreviewv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionreviewv1.AdmissionResponse{UID: review.Request.UID,
			Result: &metav1.Status{Message: "asked at " + r.Host + r.URL.Path}}
		review.Request = nil
		_ = json.NewEncoder(w).Encode(&review)
	}))
	s.Listener, s.TLS = l, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}}
	s.StartTLS()
	defer s.Close()

	c := proatest.Start(t, proatest.Memory())
	config := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "deny"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "deny.example.com",
			ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "default", Name: "hook",
				Path: new("/ask")}, CABundle: bundle},
			SideEffects: new(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{"CREATE"},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}}}
	if _, err := c.Client.Create(t.Context(), registration("validatingwebhookconfigurations"), config); err != nil {
		t.Fatal(err)
	}
	answers := func(want string) {
		t.Helper()
		last := ""
		until(t, "not "+want, func() bool {
			_, err := c.Client.Create(t.Context(), gr.ConfigMaps,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "x"}})
			if err != nil && err.Error() != last {
				last = err.Error()
				t.Log(last)
			}
			return strings.HasSuffix(last, want)
		})
	}
	const called = `failed calling webhook "deny.example.com": failed to call webhook: Post "https://hook.default.svc:443/ask?timeout=10s": `
	answers(called + `services "hook" not found`)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hook"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}}
	if _, err := c.Client.Create(t.Context(), gr.Services, service); err != nil {
		t.Fatal(err)
	}
	answers(called + `no endpoints available for service "hook"`)
	port := int32(l.Addr().(*net.TCPAddr).AddrPort().Port())
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "hook", Labels: map[string]string{discoveryv1.LabelServiceName: "hook"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("https"), Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
	}
	if _, err := c.Client.Create(t.Context(), gr.EndpointSlices, slice); err != nil {
		t.Fatal(err)
	}
	answers(`admission webhook "deny.example.com" denied the request: asked at hook.default.svc:443/ask`)
}
