package otlp

import (
	"context"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"proa.dev/trace/otlp/otlptest"
)

// grpcReceiver is an OTLP/gRPC receiver that answers as a test says.
type grpcReceiver struct {
	collector.UnimplementedTraceServiceServer
	got    []*collector.ExportTraceServiceRequest
	answer *collector.ExportTraceServiceResponse
	err    error
}

// Export implements collector.TraceServiceServer.
func (r *grpcReceiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.got = append(r.got, req)
	return r.answer, r.err
}

func (r *grpcReceiver) listen(t *testing.T, options ...grpc.ServerOption) (address string) {
	t.Helper()
	return listen(t, r, options...)
}

// listen serves a receiver until the test ends.
func listen(t *testing.T, r collector.TraceServiceServer, options ...grpc.ServerOption) (address string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(options...)
	collector.RegisterTraceServiceServer(s, r)
	go func() { _ = s.Serve(l) }() // ends with Stop
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

func TestMessageIsWhatTheJSONSays(t *testing.T) {
	in := sample()
	in.Spans[0].TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	body, err := JSON(in)
	if err != nil {
		t.Fatal(err)
	}
	want := decode(t, body)
	got := otlptest.Spans(requestOf(in).message())
	if len(got) != len(want) {
		t.Fatalf("%d spans, want %d", len(got), len(want))
	}
	for i := range want {
		if !proto.Equal(got[i].Span, want[i].Span) {
			t.Errorf("span %d is\n%v, in JSON\n%v", i, got[i].Span, want[i].Span)
		}
		for key, v := range want[i].Resource {
			if got[i].Resource[key] != v {
				t.Errorf("the resource of span %d has %s=%q, want %q", i, key, got[i].Resource[key], v)
			}
		}
	}
}

func TestSendByGRPC(t *testing.T) {
	r := &grpcReceiver{answer: &collector.ExportTraceServiceResponse{}}
	at := r.listen(t)
	if err := Send(t.Context(), "grpc://"+at, sample()); err != nil {
		t.Fatal(err)
	}
	if len(r.got) != 1 || len(otlptest.Spans(r.got[0])) != 5 {
		t.Errorf("it got %v", r.got)
	}
	r.answer.PartialSuccess = &collector.ExportTracePartialSuccess{RejectedSpans: 2, ErrorMessage: "old\x1b[m"}
	if err := Send(t.Context(), "grpc://"+at, sample()); err == nil || err.Error() != "the receiver rejected 2 spans: old[m" {
		t.Errorf("a part was rejected: %v", err)
	}
	for code, temporary := range map[codes.Code]bool{codes.Unavailable: true, codes.ResourceExhausted: true, codes.InvalidArgument: false,
		codes.PermissionDenied: false, codes.Unimplemented: false} {
		r.err = grpcstatus.Error(code, "no\x1b[31m "+strings.Repeat("x", 10000))
		err := Send(t.Context(), "grpc://"+at, sample())
		var refused *refusedError
		if !errors.As(err, &refused) || refused.temporary != temporary || !strings.Contains(err.Error(), code.String()+": no[31m xx") ||
			len(err.Error()) > 400 {
			t.Errorf("%v: %v", code, err)
		}
	}
}

func TestSendByGRPCVerifiesTheCertificate(t *testing.T) {
	certificates := httptest.NewTLSServer(http.NotFoundHandler()) // it has a certificate for 127.0.0.1
	defer certificates.Close()
	r := &grpcReceiver{answer: &collector.ExportTraceServiceResponse{}}
	at := r.listen(t, grpc.Creds(credentials.NewServerTLSFromCert(&certificates.TLS.Certificates[0])))
	if err := Send(t.Context(), "grpcs://"+at, sample()); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("a certificate that nobody trusts: %v", err)
	}
	if err := Send(t.Context(), "grpc://"+at, sample()); err == nil {
		t.Error("spans were sent without TLS to a receiver that wants it")
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificates.Certificate().Raw})
	if err := os.WriteFile(ca, block, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SendTo(t.Context(), Endpoint{URL: "grpcs://" + at, CAFile: ca}, sample()); err != nil || len(r.got) != 1 {
		t.Errorf("with the authority in a file: %v, %d requests", err, len(r.got))
	}
}

func TestAddresses(t *testing.T) {
	for addr, want := range map[string]string{
		"localhost:4318":            "http://localhost:4318/v1/traces",
		"localhost:4317":            "grpc://localhost:4317",
		"[::1]:4317":                "grpc://[::1]:4317",
		"grpc://collector":          "grpc://collector:4317",
		"grpcs://[::1]/":            "grpcs://[::1]:4317/",
		"http://localhost:4317":     "http://localhost:4317/v1/traces",
		"https://x.example":         "https://x.example/v1/traces",
		"https://x.example/my/path": "https://x.example/my/path",
	} {
		if u, err := parseURL(addr); err != nil || u.String() != want {
			t.Errorf("%s is %v, %v, want %s", addr, u, err, want)
		}
	}
	for code, want := range map[int]bool{200: false, 400: false, 401: false, 404: false, 500: false, 429: true, 502: true, 503: true} {
		if isTemporaryStatus(code) != want {
			t.Errorf("a batch with the answer %d is sent again: %v", code, !want)
		}
	}
}
