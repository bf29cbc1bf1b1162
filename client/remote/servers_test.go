package remote_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client/remote"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

// way is a way to a server that can be blocked: connections stay open, and nothing gets through.
type way struct {
	net.Listener
	to      string
	blocked chan struct{}
	block   func()
}

func newWay(t *testing.T, to string) *way {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{Listener: l, to: to, blocked: make(chan struct{})}
	w.block = sync.OnceFunc(func() { close(w.blocked) })
	var open sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); w.block(); open.Wait() })
	open.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { w.forward(t.Context(), in) })
		}
	})
	return w
}

func (w *way) forward(ctx context.Context, in net.Conn) {
	defer in.Close()
	out, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.to)
	if err != nil {
		return
	}
	defer out.Close()
	carry := func(to io.Writer, from io.Reader) {
		buf := make([]byte, 4096)
		for {
			n, err := from.Read(buf)
			select {
			case <-w.blocked:
				return
			default:
			}
			if err != nil {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	go carry(out, in)
	go carry(in, out)
	<-ctx.Done() // the connections stay open
}

// TestFailover checks that a client connects to another server when the one that it uses does not answer any more, that its views go on
// there, and that a server whose certificate does not have the right name is not used.
func TestFailover(t *testing.T) {
	cluster := proatest.Start(t, proatest.Memory())
	direct := strings.TrimPrefix(cluster.Config.Host, "https://")
	first := newWay(t, direct)
	silent := newWay(t, direct)
	silent.block()
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second) // without short pings, a silent connection is left after 25
	defer stop()
	all := []remote.Server{
		{Address: silent.Addr().String(), Name: "127.0.0.1"}, {Address: direct, Name: "kubelet.example"},
		{Address: first.Addr().String(), Name: "127.0.0.1"}, {Address: direct, Name: remote.ServerName},
	}
	c := dial(t, remote.Config{URL: "https://" + all[0].Address, TLS: tlsConfigOf(t, cluster),
		Servers: func() ([]remote.Server, bool) { return all, true }})
	v, err := c.View(ctx, gr.ConfigMaps)
	if err != nil {
		t.Fatal(err)
	}
	first.block()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "seen-elsewhere"}}
	if _, err := cluster.Client.Create(ctx, gr.ConfigMaps, o); err != nil {
		t.Fatal(err)
	}
	for e := range v.Events(ctx) {
		if e.Object != nil && e.Object.GetName() == o.Name {
			break
		}
	}
	if ctx.Err() != nil {
		t.Error("the view does not go on at the other server")
	}
	if _, err := c.Get(ctx, gr.ConfigMaps, "default", o.Name, ""); err != nil {
		t.Error(err)
	}

	wrong := dial(t, remote.Config{URL: "https://" + direct, TLS: tlsConfigOf(t, cluster),
		Servers: func() ([]remote.Server, bool) { return all[1:2], false }})
	if _, err := wrong.Get(ctx, gr.ConfigMaps, "default", o.Name, ""); err == nil || !strings.Contains(err.Error(), "kubelet.example") {
		t.Errorf("a server without the name of a server: %v", err)
	}
}

// TestUnavailableServer checks that a client leaves a server that answers, but cannot reach the store.
func TestUnavailableServer(t *testing.T) {
	cluster := proatest.Start(t, proatest.Memory())
	cut := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the store is not available", http.StatusServiceUnavailable)
	}))
	defer cut.Close()
	config := tlsConfigOf(t, cluster)
	config.RootCAs.AddCert(cut.Certificate())
	all := []remote.Server{
		{Address: cut.Listener.Addr().String(), Name: "example.com"},
		{Address: strings.TrimPrefix(cluster.Config.Host, "https://"), Name: remote.ServerName},
	}
	c := dial(t, remote.Config{URL: "https://" + all[0].Address, TLS: config,
		Servers: func() ([]remote.Server, bool) { return all, true }})
	if _, err := c.Get(t.Context(), gr.Namespaces, "", "default", ""); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("the first answer is %v, want that the server is not available", err)
	}
	if _, err := c.Get(t.Context(), gr.Namespaces, "", "default", ""); err != nil {
		t.Errorf("the next answer is %v, want that of the other server", err)
	}
}
