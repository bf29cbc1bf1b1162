package aggregation

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"proa.dev/proatest"
	"proa.dev/run"
)

// unresponsiveServer is an API server that answers discovery, and nothing else.
type unresponsiveServer struct {
	asked atomic.Int64
	paths sync.Map
}

func (s *unresponsiveServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if req.URL.Path == "/apis/slow.example.com/v1" {
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"slow.example.com/v1","resources":[{"name":"snails","namespaced":true,"kind":"Snail","verbs":["get","list"]}]}`)
		return
	}
	if !strings.HasPrefix(req.URL.Path, "/apis/slow.example.com/") {
		http.NotFound(w, req)
		return
	}
	s.paths.Store(req.URL.Path, true)
	s.asked.Add(1)
	<-req.Context().Done()
}

const admins = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bob}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: User, name: bob, apiGroup: rbac.authorization.k8s.io}]
`

// TestSlowServer sends more requests of one user to an aggregated server that does not answer than there are seats, and checks that
// the user's other requests are still answered.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	bins := programs(t, "kubectl")
	at := hostAddress(t)
	cert, key := selfSignedCert(t, "api.slow.svc")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(at, "0"))
	if err != nil {
		t.Fatal(err)
	}
	slow := &unresponsiveServer{}
	backend := &http.Server{Handler: slow, ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
	go func() { _ = backend.ServeTLS(l, "", "") }()
	defer func() { _ = backend.Close() }()

	c := &cluster{proatest.Start(t, func(c *run.Config) { c.Reading, c.Writing = 20, 10 }), t, bins["kubectl"]}
	c.run(apiService("v1", "slow.example.com", "slow", at, l.Addr().(*net.TCPAddr).Port, cert), "apply", "-f", "-")
	c.run(admins, "apply", "-f", "-")
	c.until("True", "get", "apiservice", "v1.slow.example.com")

	bob := rest.CopyConfig(c.Config)
	bob.Impersonate.UserName = "bob"
	client, err := rest.HTTPClientFor(bob)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context, path string) (int, string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, bob.Host, http.NoBody)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		req.URL.Opaque = path // as it stands
		resp, err := client.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	const base = "/apis/slow.example.com/v1/namespaces/default/snails"
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	const requests = 60
	for range requests {
		wg.Go(func() { ask(ctx, base) })
	}
	await(t, func() bool { return slow.asked.Load() >= requests }) // more than there are seats; one may be sent again
	began := time.Now()
	if code, body := ask(ctx, "/api/v1/namespaces/default/configmaps"); code != http.StatusOK {
		t.Errorf("another request of the user gets %d %s", code, body)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("another request of the user took %v", took)
	}
	// The path is sent as it was authorized: a request cannot reach another path of the aggregated server with dots.
	for _, path := range []string{base + "/%2e%2e/secrets", base + "/../secrets", base + "/a/..%2f..%2fsecrets"} {
		if code, body := ask(ctx, path); code == http.StatusOK || code == 0 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	slow.paths.Range(func(p, _ any) bool {
		if p != base {
			t.Errorf("the server was asked for %s", p)
		}
		return true
	})
}
