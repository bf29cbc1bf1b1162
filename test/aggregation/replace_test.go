package aggregation

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/client-go/rest"
)

// discovered returns a group of aggregated discovery, or nil if there is no such group.
func (c *cluster) discovered(t *testing.T, group string) *apidiscoveryv2.APIGroupDiscovery {
	t.Helper()
	var list apidiscoveryv2.APIGroupDiscoveryList
	_, body := c.raw(t, "/apis", http.Header{"Accept": {"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}})
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Name == group {
			return &list.Items[i]
		}
	}
	return nil
}

// raw sends a request as the administrator.
func (c *cluster) raw(t *testing.T, path string, h http.Header) (int, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Config.Host+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if h != nil {
		req.Header = h
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// recordingServer is an API server for one group version. It records who sends requests.
type recordingServer struct {
	mu    sync.Mutex // guards what follows
	users map[string]string
	names map[string]bool // of client certificates
}

func (i *recordingServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	i.mu.Lock()
	i.users[req.URL.Path] = req.Header.Get("X-Remote-User") + " " + strings.Join(req.Header["X-Remote-Group"], ",")
	for _, c := range req.TLS.PeerCertificates {
		i.names[c.Subject.CommonName] = true
	}
	i.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch req.URL.Path {
	case "/apis/metrics.k8s.io/v1beta1":
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"metrics.k8s.io/v1beta1","resources":[{"name":"nodes","namespaced":false,"kind":"NodeMetrics","verbs":["get","list"]}]}`)
	case "/apis/metrics.k8s.io/v1beta1/nodes":
		_, _ = io.WriteString(w, `{"kind":"NodeMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[{"metadata":{"name":"of-the-other-server"}}]}`)
	default:
		http.NotFound(w, req)
	}
}

// TestReplaceTheBuiltInMetrics registers another server for the group of the built-in metrics API, as the manifest of
// metrics-server does, and removes it again.
func TestReplaceTheBuiltInMetrics(t *testing.T) {
	t.Parallel()
	bins := programs(t, "kubectl")
	at := hostAddress(t)
	cert, key := selfSignedCert(t, "api.metrics.svc")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(at, "0"))
	if err != nil {
		t.Fatal(err)
	}
	other := &recordingServer{users: map[string]string{}, names: map[string]bool{}}
	backend := &http.Server{Handler: other, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}}
	go func() { _ = backend.ServeTLS(l, "", "") }()
	defer func() { _ = backend.Shutdown(context.WithoutCancel(t.Context())) }()

	c := start(t, bins)
	const nodes = "/apis/metrics.k8s.io/v1beta1/nodes"
	if code, body := c.raw(t, nodes, nil); code != http.StatusOK || strings.Contains(body, "of-the-other-server") {
		t.Fatalf("the built-in metrics say %d %s", code, body)
	}
	c.run(apiService("v1beta1", "metrics.k8s.io", "metrics", at, l.Addr().(*net.TCPAddr).Port, cert), "apply", "-f", "-")
	await(t, func() bool {
		code, body := c.raw(t, nodes, nil)
		return code == http.StatusOK && strings.Contains(body, "of-the-other-server")
	})
	other.mu.Lock()
	if got := other.users[nodes]; got != "proa-admin system:masters,system:authenticated" || !other.names["front-proxy-client"] {
		t.Errorf("the other server got %q from %v", got, other.names)
	}
	other.mu.Unlock()
	await(t, func() bool {
		g := c.discovered(t, "metrics.k8s.io")
		return g != nil && len(g.Versions) == 1 && len(g.Versions[0].Resources) == 1 &&
			g.Versions[0].Freshness == apidiscoveryv2.DiscoveryFreshnessCurrent
	})
	c.run("", "delete", "apiservice", "v1beta1.metrics.k8s.io")
	await(t, func() bool {
		code, body := c.raw(t, nodes, nil)
		return code == http.StatusOK && !strings.Contains(body, "of-the-other-server")
	})
	c.until("Local", "get", "apiservice", "v1beta1.metrics.k8s.io")
	await(t, func() bool {
		g := c.discovered(t, "metrics.k8s.io")
		return g != nil && len(g.Versions) == 1 && len(g.Versions[0].Resources) == 2
	})
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
  - {name: v3, served: false, storage: false, schema: {openAPIV3Schema: {type: object}}}
`

// TestCustomResourcesHaveAPIServices checks that there are APIServices for the versions of a definition as long as it exists.
func TestCustomResourcesHaveAPIServices(t *testing.T) {
	t.Parallel()
	c := start(t, programs(t, "kubectl"))
	c.run(widgets, "apply", "-f", "-")
	c.until("Local", "get", "apiservice", "v1.example.com", "v2.example.com")
	if out := c.run("", "get", "apiservice", "v2.example.com", "-o", "jsonpath={.spec.groupPriorityMinimum} {.spec.versionPriority} {.metadata.labels}"); out != `1000 100 {"kube-aggregator.kubernetes.io/automanaged":"true"}` {
		t.Errorf("it is %s", out)
	}
	if out, err := c.try("", "get", "apiservice", "v3.example.com"); err == nil {
		t.Errorf("a version that is not served has one: %s", out)
	}
	c.run("", "delete", "apiservice", "v1.example.com", "--wait=false")
	c.until("Local", "get", "apiservice", "v1.example.com")
	c.run("", "delete", "crd", "widgets.example.com")
	c.until("NotFound", "get", "apiservice", "v1.example.com")
	c.until("NotFound", "get", "apiservice", "v2.example.com")
}
