package aggregation

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

// hostileAnswers are answers to lists and watches of an aggregated API server that answers discovery as it should.
var hostileAnswers = map[string]http.HandlerFunc{
	"hangs": func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() },
	"lists without end": func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w, `{"kind":"FrogList","apiVersion":"pond.example.com/v1","metadata":{"resourceVersion":"1"},"items":[{}`)
		writeUntilEnd(w, req, strings.Repeat(`,{}`, 1<<14))
	},
	"lists nothing, and sends one event without end": func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Query().Get("watch") == "" {
			_, _ = io.WriteString(w, `{"kind":"FrogList","apiVersion":"pond.example.com/v1","metadata":{"resourceVersion":"1"},"items":[]}`)
			return
		}
		_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"`)
		writeUntilEnd(w, req, strings.Repeat("x", 1<<16))
	},
	"answers with another kind": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"x"},"items":[null,7,{"metadata":[]}]}`)
	},
	"answers in the middle of an object": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat(`{"items":[`, 1<<16))
	},
}

// writeUntilEnd writes a text until the client is gone, for at most 256 MiB.
func writeUntilEnd(w io.Writer, req *http.Request, text string) {
	for n := 0; n < 256<<20 && req.Context().Err() == nil; n += len(text) {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

// TestHostileServer checks that the garbage of other groups is collected, and the objects of other groups in a namespace
// deleted, whatever an aggregated API server answers to the garbage collector and the deletion of namespaces. The namespace
// goes when the server behaves.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	at := hostAddress(t)
	cert, key := selfSignedCert(t, "api.pond.svc")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(at, "0"))
	if err != nil {
		t.Fatal(err)
	}
	good := newObjectServer()
	var answer atomic.Pointer[http.HandlerFunc]
	var asked atomic.Int64
	var behaves atomic.Pointer[context.Context] // ends when the server begins to behave
	backend := &http.Server{ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if f := answer.Load(); f != nil && strings.HasPrefix(req.URL.Path, objectServerBase+"/") {
				w.Header().Set("Content-Type", "application/json")
				ctx, stop := context.WithCancel(req.Context())
				defer stop()
				defer context.AfterFunc(*behaves.Load(), stop)()
				asked.Add(1)
				(*f)(w, req.WithContext(ctx))
				return
			}
			good.ServeHTTP(w, req)
		})}
	go func() { _ = backend.ServeTLS(l, "", "") }()
	defer func() { _ = backend.Close() }()
	for name, f := range hostileAnswers {
		t.Run(name, func(t *testing.T) {
			c := proatest.Start(t, proatest.Memory())
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			behaves.Store(&ctx)
			answer.Store(&f)
			asked.Store(0)
			register(t, c, at, l.Addr().(*net.TCPAddr).AddrPort().Port(), cert)
			await(t, func() bool { return availableCondition(t, c) == apiregistrationv1.ConditionTrue })
			createNamespace(t, c, "full")
			createConfigMap(t, c, "full", "a")
			if err := c.Client.Delete(t.Context(), gr.Namespaces, "", "full", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			owner := createConfigMap(t, c, "default", "owner")
			createConfigMap(t, c, "default", "garbage",
				metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.GetUID()})
			deleteConfigMap(t, c, "default", "owner")
			await(t, func() bool { return !exists(t, c, gr.ConfigMaps, "default", "garbage") })
			await(t, func() bool { return !exists(t, c, gr.ConfigMaps, "full", "a") })
			await(t, func() bool { return asked.Load() > 0 })
			answer.Store(nil)
			stop()
			await(t, func() bool { return !exists(t, c, gr.Namespaces, "", "full") })
		})
	}
}
