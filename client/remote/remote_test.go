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

func trust(t *testing.T, c *proatest.Cluster) *tls.Config {
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

func TestPromises(t *testing.T) {
	t.Run("in the process", func(t *testing.T) { clienttest.Run(t, proatest.Start(t, proatest.Memory()).Client) })
	t.Run("over HTTPS", func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory())
		clienttest.Run(t, dial(t, remote.Config{URL: c.Config.Host, TLS: trust(t, c)}))
	})
}

// between is a server between the client and the cluster that a test may break.
type between struct {
	*httptest.Server
	refuse  atomic.Int64 // so many watches are refused with 410
	watches atomic.Int64
	all     atomic.Int64
	from    sync.Map // the addresses of connections
}

func newBetween(t *testing.T, c *proatest.Cluster) *between {
	t.Helper()
	to, err := url.Parse(c.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	b := &between{}
	p := &httputil.ReverseProxy{Transport: &http.Transport{TLSClientConfig: trust(t, c)}, FlushInterval: -1,
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }}
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.all.Add(1)
		b.from.Store(r.RemoteAddr, true)
		if r.URL.Query().Get("watch") == "true" {
			b.watches.Add(1)
			if b.refuse.Add(-1) >= 0 {
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

func (b *between) client(t *testing.T) *remote.Client {
	t.Helper()
	return dial(t, remote.Config{URL: b.URL,
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: b.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}})
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"v": value}}
}

// told collects what is heard, until a word.
func told(t *testing.T, v client.View) (words chan string) {
	t.Helper()
	words = make(chan string, 100)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		for ev := range v.Events(ctx) {
			switch {
			case ev.Gap:
				words <- "gap"
			case ev.Deleted:
				words <- "-" + ev.Object.GetName()
			default:
				words <- ev.Object.GetName() + "=" + ev.Object.(*corev1.ConfigMap).Data["v"]
			}
		}
	}()
	return words
}

func expect(t *testing.T, words chan string, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-words:
			if got != w {
				t.Fatalf("heard %s, want %s", got, w)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s was never heard", w)
		}
	}
}

func TestAWatchGoesOnWhereItWasCut(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	b := newBetween(t, c)
	v, err := b.client(t).Part(t.Context(), gr.ConfigMaps, client.Scope{Namespace: "default", Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	words := told(t, v)
	if _, err := c.Client.Create(t.Context(), gr.ConfigMaps, configMap("a", "0")); err != nil {
		t.Fatal(err)
	}
	expect(t, words, "a=0")
	for i := 1; i <= 3; i++ {
		before := b.watches.Load()
		b.CloseClientConnections()
		if _, err := c.Client.Update(t.Context(), gr.ConfigMaps, configMap("a", fmt.Sprint(i)), ""); err != nil {
			t.Fatal(err)
		}
		expect(t, words, fmt.Sprint("a=", i)) // and no gap
		if b.watches.Load() == before {
			t.Error("the watch was not cut")
		}
	}
}

func TestAWatchThatIsTooOldLeavesAGap(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	b := newBetween(t, c)
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
	words := told(t, v)
	expect(t, words, "a=0")
	if err := v.Reach(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	b.refuse.Store(1)
	b.CloseClientConnections()
	expect(t, words, "gap", "a=0")
	b.refuse.Store(1)
	b.CloseClientConnections()
	if err := c.Client.Delete(t.Context(), gr.ConfigMaps, "default", "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client.Create(t.Context(), gr.ConfigMaps, configMap("a", "1")); err != nil {
		t.Fatal(err)
	}
	for last := ""; last != "a=1"; {
		last = <-words
	}
}

func TestOneConnection(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	b := newBetween(t, c)
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
	b.from.Range(func(_, _ any) bool { conns++; return true })
	if conns != 1 {
		t.Errorf("%d requests took %d connections", b.all.Load(), conns)
	}
}

func TestWhoAsks(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "somebody"}}
	if _, err := c.Client.Create(t.Context(), gr.ServiceAccounts, account); err != nil {
		t.Fatal(err)
	}
	out, err := c.Client.Act(t.Context(), gr.ServiceAccounts, "default", "somebody", "token", &authenticationv1.TokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	plain := trust(t, c)
	plain.Certificates = nil
	token := out.(*authenticationv1.TokenRequest).Status.Token
	r := dial(t, remote.Config{URL: c.Config.Host, TLS: plain, Token: func() (string, error) { return token, nil }})
	if _, err := r.Get(t.Context(), gr.Secrets, "default", "x", ""); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "system:serviceaccount:default:somebody") {
		t.Errorf("somebody who may not: %v", err)
	}
	if _, err := r.View(t.Context(), gr.Secrets); !apierrors.IsForbidden(err) {
		t.Errorf("a view of somebody who may not: %v", err)
	}
	nobody := dial(t, remote.Config{URL: c.Config.Host, TLS: plain})
	if _, err := nobody.Get(t.Context(), gr.Secrets, "default", "x", ""); !apierrors.IsUnauthorized(err) {
		t.Errorf("nobody: %v", err)
	}
	if _, err := remote.New(t.Context(), remote.Config{URL: "nowhere"}); err == nil {
		t.Error("an address that is none was taken")
	}
}
