package aggregation

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"proa.dev/kinds/kind"
	"proa.dev/server/apidiscovery"
	"proa.dev/server/extensionclient"
	"proa.dev/test/ports"
)

var wardle = schema.GroupVersion{Group: "wardle.example.com", Version: "v1"}

// aggregatorTest is an aggregator with one aggregated server, whose address is that of a listener.
type aggregatorTest struct {
	*Aggregator
	service *apiregistrationv1.APIService
	front   *httptest.Server
	at      string
	ctx     context.Context
}

// newAggregatorTest serves a handler as an aggregated server, with an APIService that is available.
func newAggregatorTest(t *testing.T, h http.Handler) *aggregatorTest {
	t.Helper()
	back := httptest.NewTLSServer(h)
	t.Cleanup(back.Close)
	w := &aggregatorTest{at: back.Listener.Addr().String(), ctx: t.Context()}
	w.Aggregator = New(Config{Log: slog.New(slog.DiscardHandler), Clients: extensionclient.New(extensionclient.Config{
		Resolve: func(context.Context, extensionclient.Service) ([]extensionclient.Address, error) {
			return []extensionclient.Address{{Host: w.at}}, nil
		},
		Certificate: func() (*tls.Certificate, error) { return &back.TLS.Certificates[0], nil },
	})})
	w.service = &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.wardle.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: wardle.Group, Version: wardle.Version, GroupPriorityMinimum: 1000, VersionPriority: 15, InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "wardle", Name: "api", Port: new(int32(443))},
		},
	}
	w.set(apiregistrationv1.ConditionTrue)
	w.front = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		rw.Header().Set("Audit-Id", "ours")
		w.Pass(rw, req, wardle, &user.DefaultInfo{Name: "alice", UID: "7", Groups: []string{"dev", "ops"},
			Extra: map[string][]string{"Team/x": {"a", "b"}}})
	}))
	t.Cleanup(w.front.Close)
	return w
}

// set sets the condition Available of the APIService.
func (w *aggregatorTest) set(status apiregistrationv1.ConditionStatus) {
	s := w.service.DeepCopy()
	s.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: status, Reason: "Why"}}
	w.Update(w.ctx, slices.Values([]kind.Object{s}))
}

// get sends a request through the aggregator.
func (w *aggregatorTest) get(t *testing.T, path string, h http.Header) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.front.URL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if h != nil {
		req.Header = h
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// waitForDiscovery waits until discovery has the one version of the aggregated server, and that satisfies ok.
func (w *aggregatorTest) waitForDiscovery(t *testing.T, what string, ok func(apidiscovery.Remote) bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		all := w.Versions()
		if len(all) == 1 && ok(all[0]) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: discovery shows %+v", what, all)
		}
	}
}

const flunders = "/apis/wardle.example.com/v1/namespaces/default/flunders"

// TestUserHeadersAreSetByServerOnly checks that a client cannot set the user for the aggregated server, and that its
// credentials are not forwarded.
func TestUserHeadersAreSetByServerOnly(t *testing.T) {
	var mu sync.Mutex
	var seen http.Header
	w := newAggregatorTest(t, http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		if req.URL.Path == flunders {
			mu.Lock()
			defer mu.Unlock()
			seen = req.Header.Clone()
			seen.Set("Peer", fmt.Sprint(len(req.TLS.PeerCertificates)))
			seen.Set("Url", req.URL.String())
		}
		rw.Header().Set("Audit-Id", "forged")
		rw.Header().Set("Alt-Svc", `h2="evil.example.com:443"`)
		rw.Header().Set("Cache-Control", "no-store")
		_, _ = io.WriteString(rw, "{}")
	}))
	resp, body := w.get(t, flunders+"?limit=5&labelSelector=a%3Db", http.Header{
		"Authorization": {"Bearer secret"}, "X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Uid": {"0"},
		"X-Remote-Extra-Scopes": {"all"}, "Impersonate-User": {"root"}, "Impersonate-Extra-A": {"b"}, "X-Other": {"stays"},
	})
	if resp.StatusCode != http.StatusOK || body != "{}" {
		t.Fatalf("got %d %q", resp.StatusCode, body)
	}
	mu.Lock()
	defer mu.Unlock()
	for key, want := range map[string][]string{
		"Authorization": nil, "X-Remote-User": {"alice"}, "X-Remote-Uid": {"7"}, "X-Remote-Group": {"dev", "ops"},
		"X-Remote-Extra-Scopes":   nil,
		"X-Remote-Extra-Team%2fx": {"a", "b"}, "Impersonate-User": nil, "Impersonate-Extra-A": nil, "X-Other": {"stays"},
		"Audit-Id": {"ours"},
		"Url":      {flunders + "?labelSelector=a%3Db&limit=5"},
	} {
		if !slices.Equal(seen[key], want) {
			t.Errorf("the server got %s: %q, want %q", key, seen[key], want)
		}
	}
	if resp.Header.Get("Alt-Svc") != "" || !slices.Equal(resp.Header["Audit-Id"], []string{"ours"}) ||
		!slices.Equal(resp.Header["Cache-Control"], []string{"no-store"}) {
		t.Errorf("the client got %v", resp.Header)
	}
}

// TestRedirectsAreRefused checks that redirects of an aggregated server are followed neither by clients, nor by this server
// when it fetches documents.
func TestRedirectsAreRefused(t *testing.T) {
	var followed sync.Map
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { followed.Store(req.URL.Path, true) }))
	defer target.Close()
	w := newAggregatorTest(t, http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		http.Redirect(rw, req, target.URL+req.URL.Path, http.StatusTemporaryRedirect)
	}))
	resp, body := w.get(t, flunders, nil)
	if resp.StatusCode != http.StatusBadGateway || body != "the backend attempted to redirect this request, which is not permitted" || resp.Header.Get("Location") != "" {
		t.Errorf("got %d %q, Location %q", resp.StatusCode, body, resp.Header.Get("Location"))
	}
	if err := w.Check(t.Context(), w.service); err == nil || !strings.Contains(err.Error(), "bad status from https://api.wardle.svc:443/apis/wardle.example.com/v1: 307") {
		t.Errorf("the check returned %v", err)
	}
	followed.Range(func(path, _ any) bool { t.Errorf("the redirect for %s was followed", path); return true })
	w.waitForDiscovery(t, "a server that redirects has nothing", func(r apidiscovery.Remote) bool { return r.Stale })
}

func TestUnavailableMetric(t *testing.T) {
	w := newAggregatorTest(t, http.NotFoundHandler())
	for _, status := range []apiregistrationv1.ConditionStatus{"False", "False", "True", "False"} {
		w.set(status)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(w.Aggregator)
	scrape := func() string {
		rec := httptest.NewRecorder()
		promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
		return rec.Body.String()
	}
	text := scrape()
	for _, want := range []string{
		`aggregator_unavailable_apiservice_total{name="v1.wardle.example.com",reason="Why"} 2`,
		`aggregator_unavailable_apiservice{name="v1.wardle.example.com"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	w.Update(w.ctx, slices.Values([]kind.Object{}))
	if text := scrape(); strings.Contains(text, "wardle") {
		t.Errorf("an APIService that is gone is still counted:\n%s", text)
	}
}

// TestUnavailable checks that a server which is unavailable is not called, and that a dead one does not delay requests
// for long.
func TestUnavailable(t *testing.T) {
	var called sync.Map
	w := newAggregatorTest(t, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { called.Store(req.URL.Path, true) }))
	w.set(apiregistrationv1.ConditionFalse)
	if resp, body := w.get(t, flunders, nil); resp.StatusCode != http.StatusServiceUnavailable || body != "service unavailable\n" {
		t.Errorf("got %d %q", resp.StatusCode, body)
	}
	if _, found := called.Load(flunders); found {
		t.Error("the server was called")
	}
	if all := w.Versions(); len(all) != 1 || !all[0].Stale {
		t.Errorf("discovery shows %+v", all)
	}
	w.set(apiregistrationv1.ConditionTrue)
	w.at = ports.Address(t)
	w.Clients.Close()
	resp, body := w.get(t, flunders, nil)
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "error trying to reach service: dial tcp") {
		t.Errorf("got %d %q", resp.StatusCode, body)
	}
	if w.Serves(schema.GroupVersion{Group: "apps", Version: "v1"}) {
		t.Error("another group was taken over")
	}
}

// TestReservedGroupsAreNotAggregated checks that neither the core group nor the group of APIServices can be served by another
// server, because that could not be undone.
func TestReservedGroupsAreNotAggregated(t *testing.T) {
	w := newAggregatorTest(t, http.NotFoundHandler())
	for _, group := range []string{"", apiregistrationv1.GroupName} {
		s := w.service.DeepCopy()
		s.Spec.Group = group
		w.Update(t.Context(), slices.Values([]kind.Object{s}))
		if w.Serves(schema.GroupVersion{Group: group, Version: "v1"}) {
			t.Errorf("group %q is served elsewhere", group)
		}
	}
	if len(w.refreshers) != 0 {
		t.Errorf("%d servers are still refreshed", len(w.refreshers))
	}
}

// TestWatchIsFlushed checks that the events of a watch are forwarded at once.
func TestWatchIsFlushed(t *testing.T) {
	next := make(chan string)
	w := newAggregatorTest(t, http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		if req.URL.Path != flunders {
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		for text := range next {
			_, _ = io.WriteString(rw, text+"\n")
			rw.(http.Flusher).Flush()
		}
	}))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.front.URL+flunders+"?watch=1", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	go func() { next <- "first" }()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for _, want := range []string{"first", "second"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("got %q, want %q", lines.Text(), want)
		}
		if want == "first" {
			next <- "second"
		}
	}
	close(next)
}

// TestUpgrade checks that a request becomes a stream, with the user that this server names.
func TestUpgrade(t *testing.T) {
	w := newAggregatorTest(t, http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Upgrade") == "" {
			return
		}
		conn, both, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = fmt.Fprintf(both, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n%s\n", req.Header.Get("X-Remote-User"))
		_ = both.Flush()
		line, _ := both.ReadString('\n')
		_, _ = both.WriteString(line)
		_ = both.Flush()
	}))
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "GET %s/a/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Remote-User: admin\r\n\r\n", flunders)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %+v, %v", resp, err)
	}
	if line, err := r.ReadString('\n'); err != nil || line != "alice\n" {
		t.Errorf("the stream is for %q, %v", line, err)
	}
	_, _ = io.WriteString(conn, "hello\n")
	if line, err := r.ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("got %q, %v", line, err)
	}
}

// TestCertificates checks that a server without the certificate of its Service is rejected.
func TestCertificates(t *testing.T) {
	var called sync.Map
	w := newAggregatorTest(t, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { called.Store(req.URL.Path, true) }))
	w.service.Spec.InsecureSkipTLSVerify = false
	w.set(apiregistrationv1.ConditionTrue)
	const path = flunders + "/strict"
	resp, body := w.get(t, path, nil)
	if _, found := called.Load(path); found || resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "certificate") {
		t.Errorf("got %d %q", resp.StatusCode, body)
	}
}

// serveDocuments returns a handler that serves discovery documents by path.
func serveDocuments(documents map[string]any) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		d, found := documents[req.URL.Path]
		if !found {
			http.NotFound(rw, req)
			return
		}
		if _, ok := d.(*apidiscoveryv2.APIGroupDiscoveryList); ok {
			rw.Header().Set("Content-Type", acceptAggregated)
		} else {
			rw.Header().Set("Content-Type", acceptJSON)
		}
		_ = json.NewEncoder(rw).Encode(d)
	})
}

// TestDiscovery checks that a server's documents about other groups, and invalid names, are ignored.
func TestDiscovery(t *testing.T) {
	group := func(name string, resources ...string) apidiscoveryv2.APIGroupDiscovery {
		v := apidiscoveryv2.APIVersionDiscovery{Version: "v1"}
		for _, r := range resources {
			v.Resources = append(v.Resources, apidiscoveryv2.APIResourceDiscovery{Resource: r})
		}
		return apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name},
			Versions: []apidiscoveryv2.APIVersionDiscovery{v}}
	}
	w := newAggregatorTest(t, serveDocuments(map[string]any{
		"/apis": &apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{
			group("apps", "deployments"), group(wardle.Group, "flunders", "", "a/b", "x\ny", strings.Repeat("z", 300)),
		}},
		"/openapi/v3": map[string]any{"paths": map[string]any{
			"apis/wardle.example.com/v1": map[string]any{"serverRelativeURL": "https://evil.example.com/x?hash=ABC"},
			"apis/apps/v1":               map[string]any{},
		}},
		"/openapi/v3/apis/wardle.example.com/v1": map[string]any{"openapi": "3.0.0"},
	}))
	w.waitForDiscovery(t, "only flunders", func(r apidiscovery.Remote) bool {
		return !r.Stale && r.GroupVersion == wardle && len(r.Resources) == 1 && r.Resources[0].Resource == "flunders" &&
			r.Resources[0].ResponseKind != nil
	})
	for deadline := time.Now().Add(time.Minute); len(w.Descriptions()) == 0 &&
		time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	all := w.Descriptions()
	if len(all) != 1 || all[0].GroupVersion != wardle || !strings.HasSuffix(all[0].Tag, "hash=ABC") {
		t.Fatalf("the descriptions are %+v", all)
	}
	if doc, err := all[0].Document(t.Context()); err != nil || !strings.Contains(string(doc), "3.0.0") {
		t.Errorf("the document is %q, %v", doc, err)
	}
	w.Update(t.Context(), slices.Values([]kind.Object{}))
	if len(w.Versions()) != 0 || w.Serves(wardle) {
		t.Error("it is served after its APIService is gone")
	}
}

// TestLegacyDiscovery checks a server that has only the documents of group versions.
func TestLegacyDiscovery(t *testing.T) {
	w := newAggregatorTest(t,
		serveDocuments(map[string]any{"/apis/wardle.example.com/v1": metav1.APIResourceList{APIResources: []metav1.APIResource{
			{Name: "flunders/status", Kind: "Flunder", Namespaced: true, Verbs: []string{"get"}},
			{Name: "flunders", SingularName: "flunder", Kind: "Flunder", Namespaced: true, Verbs: []string{"get", "list"},
				ShortNames: []string{"fl"}},
			{Name: "fischers", Kind: "Fischer", Verbs: []string{"list"}},
		}}}))
	w.waitForDiscovery(t, "legacy", func(r apidiscovery.Remote) bool { return !r.Stale && len(r.Resources) == 2 })
	got := w.Versions()[0].Resources
	if f := got[0]; f.Resource != "flunders" || f.Scope != apidiscoveryv2.ScopeNamespace || f.ResponseKind.Kind != "Flunder" ||
		len(f.Subresources) != 1 || f.Subresources[0].Subresource != "status" {
		t.Errorf("got %+v", f)
	}
	if got[1].Scope != apidiscoveryv2.ScopeCluster {
		t.Errorf("got %+v", got[1])
	}
}

// TestEndlessDiscovery checks that only a limited part of an endless document is read.
func TestEndlessDiscovery(t *testing.T) {
	sent := make(chan int, 1)
	w := newAggregatorTest(t, http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		rw.Header().Set("Content-Type", acceptAggregated)
		n := 0
		for req.Context().Err() == nil && n < 64<<20 {
			k, err := rw.Write([]byte(strings.Repeat(" ", 64<<10)))
			n += k
			if err != nil {
				break
			}
		}
		select {
		case sent <- n:
		default:
		}
	}))
	b := backendOf(w.service)
	if _, err := w.fetch(t.Context(), b, nil); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("got %v", err)
	}
	if n := <-sent; n >= 64<<20 {
		t.Errorf("%d bytes were read", n)
	}
	if !w.Versions()[0].Stale {
		t.Error("it is not stale")
	}
}
