package httpproxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// certFor makes a self-signed certificate with a DNS name.
func certFor(t *testing.T, name string) *Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader,
		&x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)},
		&x509.Certificate{SerialNumber: big.NewInt(1)}, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestCertificates(t *testing.T) {
	f := newTestProxy(t)
	offered := func(name string) string {
		t.Helper()
		c, err := tls.Dial("tcp", f.https, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].DNSNames[0]
	}
	if got := offered("a.example.com"); got != "fallback.invalid" {
		t.Errorf("without certificates: %s", got)
	}
	table := NewTable(nil, nil)
	f.proxy.Swap(table, map[string]*Certificate{"a.example.com": certFor(t, "exact"), "*.example.com": certFor(t, "wild")})
	for name, want := range map[string]string{
		"a.example.com": "exact", "A.EXAMPLE.com": "exact", "b.example.com": "wild", "x.y.example.com": "fallback.invalid",
		"example.com": "fallback.invalid", "": "fallback.invalid",
	} {
		if got := offered(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
	f.proxy.Swap(table, map[string]*Certificate{"a.example.com": certFor(t, "next"), "": certFor(t, "all")})
	for name, want := range map[string]string{"a.example.com": "next", "b.example.com": "all", "": "all"} {
		if got := offered(name); got != want {
			t.Errorf("after the change, %q: %s, want %s", name, got, want)
		}
	}
	if _, err := tls.Dial("tcp", f.https, &tls.Config{MaxVersion: tls.VersionTLS11, InsecureSkipVerify: true}); err == nil {
		t.Error("TLS 1.1 is accepted")
	}
}

func TestFallbackIsRenewed(t *testing.T) {
	var f fallback
	now := time.Now()
	a, err := f.get(now)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := f.get(now.Add(time.Hour)); b != a {
		t.Error("a new certificate after an hour")
	}
	if b, _ := f.get(now.Add(fallbackFor)); b == a {
		t.Error("the expired certificate is still used")
	}
}

// TestGRPC calls a service with one response, with streams, and with errors, with and without TLS.
func TestGRPC(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		s.SetTrailer(metadata.Pairs("sum", "of all"))
		method, _ := grpc.MethodFromServerStream(s)
		for {
			var in wrapperspb.StringValue
			if err := s.RecvMsg(&in); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			if strings.HasSuffix(method, "Fail") {
				return status.Error(codes.FailedPrecondition, "not today: "+in.Value)
			}
			if err := s.SendMsg(wrapperspb.String(strings.ToUpper(in.Value))); err != nil {
				return err
			}
		}
		return nil
	}))
	go func() { _ = server.Serve(l) }()
	defer server.Stop()
	f := newTestProxy(t)
	f.routeAllTo(GRPC, Filters{}, l.Addr().String())
	for at, creds := range map[string]credentials.TransportCredentials{
		f.http: insecure.NewCredentials(), f.https: credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}),
	} {
		conn, err := grpc.NewClient("passthrough:///"+at, grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		var out wrapperspb.StringValue
		var trailer metadata.MD
		if err := conn.Invoke(t.Context(), "/echo.Echo/One", wrapperspb.String("hello"), &out, grpc.Trailer(&trailer)); err != nil ||
			out.Value != "HELLO" || fmt.Sprint(trailer["sum"]) != "[of all]" {
			t.Errorf("%q %v %v", out.Value, trailer, err)
		}
		err = conn.Invoke(t.Context(), "/echo.Echo/Fail", wrapperspb.String("x"), &out)
		if s := status.Convert(err); s.Code() != codes.FailedPrecondition || s.Message() != "not today: x" {
			t.Errorf("the error is %v", err)
		}
		stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/echo.Echo/Many")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if err := stream.SendMsg(wrapperspb.String(fmt.Sprint("word ", i))); err != nil {
				t.Fatal(err)
			}
			if err := stream.RecvMsg(&out); err != nil || out.Value != fmt.Sprint("WORD ", i) {
				t.Fatalf("%q %v", out.Value, err)
			}
		}
		_ = stream.CloseSend()
		if err := stream.RecvMsg(&out); !errors.Is(err, io.EOF) || fmt.Sprint(stream.Trailer()["sum"]) != "[of all]" {
			t.Errorf("the end of the stream: %v, %v", err, stream.Trailer())
		}
		conn.Close()
	}
	f.routeAllTo(GRPC, Filters{})
	conn, err := grpc.NewClient("passthrough:///"+f.http, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Invoke(t.Context(), "/echo.Echo/One", wrapperspb.String("hello"),
		&wrapperspb.StringValue{}); status.Code(err) != codes.Unavailable {
		t.Errorf("without endpoints: %v", err)
	}
}

func TestMetrics(t *testing.T) {
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			w.WriteHeader(500)
		}
	})
	f := newTestProxy(t)
	f.routeAllTo(HTTP, Filters{}, b.URL)
	for _, path := range []string{"/", "/x", "/bad"} {
		get(t, newClient(t), "http://"+f.http+path)
	}
	// Requests are counted after the client has got its response.
	f.shutdown()
	if got := requestCounters(t, f.proxy.Metrics); got != "ns web 200: 2, ns web 500: 1" {
		t.Errorf("counted: %s", got)
	}
	f.setRules()
	if got := requestCounters(t, f.proxy.Metrics); got != "" {
		t.Errorf("counters of a deleted rule: %s", got)
	}
}

// requestCounters returns the request counters as a text.
func requestCounters(t *testing.T, m *Metrics) string {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(m)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, x := range f.GetMetric() {
			label := map[string]string{}
			for _, l := range x.GetLabel() {
				label[l.GetName()] = l.GetValue()
			}
			if x.GetCounter() != nil {
				out = append(out, fmt.Sprintf("%s %s %s: %v", label["namespace"], label["ingress"], label["code"],
					x.GetCounter().GetValue()))
			}
		}
	}
	return strings.Join(out, ", ")
}

// shutdown stops the servers, which waits until no request is being handled.
func (f *testProxy) shutdown() {
	f.t.Helper()
	for _, s := range f.servers {
		if err := s.Shutdown(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
	}
}
