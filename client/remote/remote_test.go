package remote_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/client/clienttest"
	"proa.dev/client/remote"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

func tlsConfigOf(t *testing.T, c *proatest.Cluster) *tls.Config {
	t.Helper()
	cert, err := tls.X509KeyPair(c.Config.CertData, c.Config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	cas := x509.NewCertPool()
	cas.AppendCertsFromPEM(c.Config.CAData)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cas, Certificates: []tls.Certificate{cert}}
}

func dial(t *testing.T, c remote.Config) *remote.Client {
	t.Helper()
	c.Log = slog.New(slog.DiscardHandler)
	r, err := remote.New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func TestConformance(t *testing.T) {
	t.Run("in the process", func(t *testing.T) { clienttest.Run(t, proatest.Start(t, proatest.Memory()).Client) })
	t.Run("over HTTPS", func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory())
		clienttest.Run(t, dial(t, remote.Config{URL: c.Config.Host, TLS: tlsConfigOf(t, c)}))
	})
}

// breakableProxy is a reverse proxy between a client and a cluster, which can refuse watches and close connections.
type breakableProxy struct {
	*httptest.Server
	refuseWatches atomic.Int64 // so many watches are refused with 410
	watches       atomic.Int64
	requests      atomic.Int64
	addresses     sync.Map // the addresses of connections
}

func newBreakableProxy(t *testing.T, c *proatest.Cluster) *breakableProxy {
	t.Helper()
	to, err := url.Parse(c.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	b := &breakableProxy{}
	p := &httputil.ReverseProxy{Transport: &http.Transport{TLSClientConfig: tlsConfigOf(t, c)}, FlushInterval: -1,
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }}
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.requests.Add(1)
		b.addresses.Store(r.RemoteAddr, true)
		if r.URL.Query().Get("watch") == "true" {
			b.watches.Add(1)
			if b.refuseWatches.Add(-1) >= 0 {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusGone)
				fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old"}`)
				return
			}
		}
		p.ServeHTTP(w, r)
	}))
	b.EnableHTTP2 = true
	b.StartTLS()
	t.Cleanup(b.Close)
	return b
}

func (b *breakableProxy) client(t *testing.T) *remote.Client {
	t.Helper()
	return dial(t, remote.Config{URL: b.URL,
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: b.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}})
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"v": value}}
}

// collectEvents returns a channel with the events of a view as text: "name=value", "-name" for a deletion, or "gap".
func collectEvents(t *testing.T, v client.View) (events chan string) {
	t.Helper()
	events = make(chan string, 100)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		for ev := range v.Events(ctx) {
			switch {
			case ev.Gap:
				events <- "gap"
			case ev.Deleted:
				events <- "-" + ev.Object.GetName()
			default:
				events <- ev.Object.GetName() + "=" + ev.Object.(*corev1.ConfigMap).Data["v"]
			}
		}
	}()
	return events
}

func expect(t *testing.T, events chan string, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-events:
			if got != w {
				t.Fatalf("got %s, want %s", got, w)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s did not arrive", w)
		}
	}
}

func TestWatchResumesAfterConnectionLoss(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	b := newBreakableProxy(t, c)
	v, err := b.client(t).Part(t.Context(), gr.ConfigMaps, client.Scope{Namespace: "default", Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	events := collectEvents(t, v)
	if _, err := c.Client.Create(t.Context(), gr.ConfigMaps, configMap("a", "0")); err != nil {
		t.Fatal(err)
	}
	expect(t, events, "a=0")
	for i := 1; i <= 3; i++ {
		before := b.watches.Load()
		b.CloseClientConnections()
		if _, err := c.Client.Update(t.Context(), gr.ConfigMaps, configMap("a", fmt.Sprint(i)), ""); err != nil {
			t.Fatal(err)
		}
		expect(t, events, fmt.Sprint("a=", i)) // and no gap
		if b.watches.Load() == before {
			t.Error("the watch was not cut")
		}
	}
}

func TestWatchThatIsTooOldReportsGap(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	b := newBreakableProxy(t, c)
	for _, name := range []string{"a", "b"} {
		if _, err := c.Client.Create(t.Context(), gr.ConfigMaps, configMap(name, "0")); err != nil {
			t.Fatal(err)
		}
	}
	r := b.client(t)
	v, err := r.Part(t.Context(), gr.ConfigMaps, client.Scope{Namespace: "default", Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	events := collectEvents(t, v)
	expect(t, events, "a=0")
	if err := v.Reach(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	b.refuseWatches.Store(1)
	b.CloseClientConnections()
	expect(t, events, "gap", "a=0")
	b.refuseWatches.Store(1)
	b.CloseClientConnections()
	if err := c.Client.Delete(t.Context(), gr.ConfigMaps, "default", "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client.Create(t.Context(), gr.ConfigMaps, configMap("a", "1")); err != nil {
		t.Fatal(err)
	}
	for last := ""; last != "a=1"; {
		last = <-events
	}
}

func TestRequestsShareOneConnection(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	b := newBreakableProxy(t, c)
	r := b.client(t)
	for _, of := range []string{"configmaps", "secrets", "services"} {
		if _, err := r.Part(t.Context(), gr.ConfigMaps.WithVersion("v1").GroupVersion().WithResource(of).GroupResource(),
			client.Scope{Namespace: "default"}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		if _, err := r.Create(t.Context(), gr.ConfigMaps, configMap(fmt.Sprint("c", i), "")); err != nil {
			t.Fatal(err)
		}
	}
	conns := 0
	b.addresses.Range(func(_, _ any) bool { conns++; return true })
	if conns != 1 {
		t.Errorf("%d requests took %d connections", b.requests.Load(), conns)
	}
}

func TestClientIdentity(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "somebody"}}
	if _, err := c.Client.Create(t.Context(), gr.ServiceAccounts, account); err != nil {
		t.Fatal(err)
	}
	out, err := c.Client.Act(t.Context(), gr.ServiceAccounts, "default", "somebody", "token", &authenticationv1.TokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	withoutCert := tlsConfigOf(t, c)
	withoutCert.Certificates = nil
	token := out.(*authenticationv1.TokenRequest).Status.Token
	r := dial(t, remote.Config{URL: c.Config.Host, TLS: withoutCert, Token: func() (string, error) { return token, nil }})
	if _, err := r.Get(t.Context(), gr.Secrets, "default", "x", ""); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "system:serviceaccount:default:somebody") {
		t.Errorf("a get without permission: %v", err)
	}
	if _, err := r.View(t.Context(), gr.Secrets); !apierrors.IsForbidden(err) {
		t.Errorf("a view without permission: %v", err)
	}
	anonymous := dial(t, remote.Config{URL: c.Config.Host, TLS: withoutCert})
	if _, err := anonymous.Get(t.Context(), gr.Secrets, "default", "x", ""); !apierrors.IsUnauthorized(err) {
		t.Errorf("a get without credentials: %v", err)
	}
	if _, err := remote.New(t.Context(), remote.Config{URL: "nowhere"}); err == nil {
		t.Error("an invalid address was accepted")
	}
}
