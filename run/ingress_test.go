package run

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/control"
	"proa.dev/kinds/lib/gr"
	"proa.dev/run/bootstraproles"
	"proa.dev/run/settings"
	"proa.dev/server/localclient"
)

func TestIngressSettings(t *testing.T) {
	for given, want := range map[string]string{
		"":                    "{proa 80 443 proa}",
		"ingress-class=off":   "{ 80 443 proa}",
		"ingress-class=web":   "{web 80 443 proa}",
		"gateway-class=off":   "{proa 80 443 }",
		"gateway-class=edge":  "{proa 80 443 edge}",
		"gateway-class=A_B":   `--gateway-class: "A_B": `,
		"ingress-class=A_B":   `--ingress-class: "A_B": `,
		"ingress-http-port=0": "{proa 0 443 proa}",
		"ingress-https-port=8443,ingress-http-port=8080": "{proa 8080 8443 proa}",
		"ingress-https-port=80":                          "ingress-http-port and ingress-https-port are both 80; one port is for one of them",
		"ingress-http-port=http":                         `--ingress-http-port: "http" is not a port`,
	} {
		flags := settings.Values{}
		for word := range strings.SplitSeq(given, ",") {
			if name, value, ok := strings.Cut(word, "="); ok {
				flags[name] = []string{value}
			}
		}
		c, err := Load("", flags)
		got := fmt.Sprint(c.Ingress)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", given, got, want)
		}
	}
}

// newServer returns a server in memory with the initial objects of a cluster; no controller runs.
func newServer(t *testing.T) *Server {
	t.Helper()
	c := Default()
	c.DataDir, c.InMemory, c.InProcess, c.Node.Name = t.TempDir(), true, true, "a"
	c.FilterControllers = func([]control.Controller) []control.Controller { return nil }
	s := &Server{Config: c, log: slog.New(slog.DiscardHandler)}
	t.Cleanup(s.close)
	if err := s.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.createInitialObjects(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestIngressPermissions checks that the proxy for Ingresses may read what it needs and write the status of Ingresses, and
// nothing else.
func TestIngressPermissions(t *testing.T) {
	ingresses, classes := schema.GroupResource{Group: networkingv1.GroupName,
		Resource: "ingresses"}, schema.GroupResource{Group: networkingv1.GroupName, Resource: "ingressclasses"}
	s := newServer(t)
	proxy, admin := localclient.New(s.pipeline, Account(bootstraproles.IngressAccount)), localclient.New(s.pipeline, apiserver())
	for _, on := range []schema.GroupResource{ingresses, classes, gr.Services, gr.EndpointSlices, gr.Secrets, gr.Nodes} {
		if _, err := proxy.View(t.Context(), on); err != nil {
			t.Errorf("it must see %s: %v", on, err)
		}
	}
	for _, on := range []schema.GroupResource{gr.Pods, gr.ConfigMaps, gr.ServiceAccounts} {
		if _, err := proxy.View(t.Context(), on); !apierrors.IsForbidden(err) {
			t.Errorf("it may see %s: %v", on, err)
		}
	}
	if _, err := proxy.Create(t.Context(), gr.Secrets,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}}); !apierrors.IsForbidden(err) {
		t.Errorf("it may make Secrets: %v", err)
	}
	in := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: networkingv1.IngressSpec{
		DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web",
			Port: networkingv1.ServiceBackendPort{Number: 80}}},
	}}
	o, err := admin.Create(t.Context(), ingresses, in)
	if err != nil {
		t.Fatal(err)
	}
	created := o.(*networkingv1.Ingress)
	if _, err := proxy.Update(t.Context(), ingresses, created.DeepCopy(), ""); !apierrors.IsForbidden(err) {
		t.Errorf("it may change Ingresses: %v", err)
	}
	created.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
	if _, err := proxy.Update(t.Context(), ingresses, created, "status"); err != nil {
		t.Errorf("it must write their status: %v", err)
	}
}
