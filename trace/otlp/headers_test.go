package otlp

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	grpcstatus "google.golang.org/grpc/status"

	"proa.dev/trace/otlp/otlptest"
)

const secret = "s3cr3t-t0ken"

// writeFile writes a file of a test, and returns its name.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// certificateFile writes the certificate of a server to a file.
func certificateFile(t *testing.T, s *httptest.Server) string {
	t.Helper()
	return writeFile(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
}

func TestHeadersAndCompressionByHTTP(t *testing.T) {
	var header http.Header
	var body []byte
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = r.Header.Clone()
		z, err := gzip.NewReader(r.Body)
		if err == nil {
			body, err = io.ReadAll(z)
		}
		if err != nil || r.Header.Get("Authorization") != "Bearer "+secret {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprintf(w, "%v, and %q is not a token", err, r.Header.Get("Authorization"))
		}
	}))
	defer srv.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20b, authorization=Bearer%20old")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "X-Traces=only")
	file := writeFile(t, "headers", "# the credential\n\nAuthorization: Bearer "+secret+"\n")
	to := Endpoint{URL: srv.URL, CAFile: certificateFile(t, srv), HeadersFile: file, Gzip: true}
	if err := SendTo(t.Context(), to, sample()); err != nil {
		t.Fatal(err)
	}
	if header.Get("X-Tenant") != "a b" || header.Get("X-Traces") != "only" || header.Get("Content-Encoding") != "gzip" ||
		header.Get("Content-Type") != "application/json" {
		t.Errorf("%v", header)
	}
	if n := len(spansByName(t, decode(t, body))); n != 5 {
		t.Errorf("%d spans arrived, want 5", n)
	}
	// The credential is replaced while the process runs, by one that the receiver does not take. Its answer quotes it.
	s, err := to.open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := os.WriteFile(file, []byte("Authorization: Bearer wrong-"+secret), 0o600); err != nil {
		t.Fatal(err)
	}
	err = s.send(t.Context(), requestOf(sample()))
	if err == nil || !strings.Contains(err.Error(), "401 Unauthorized") || !strings.Contains(err.Error(), "***") ||
		strings.Contains(err.Error(), "wrong") || strings.Contains(err.Error(), secret) {
		t.Errorf("%v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := s.send(t.Context(), requestOf(sample())); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("without the file: %v", err)
	}
}

// authorizedReceiver takes what has the right credential, and quotes others.
type authorizedReceiver struct {
	collector.UnimplementedTraceServiceServer
	got *collector.ExportTraceServiceRequest
}

// Export implements collector.TraceServiceServer.
func (r *authorizedReceiver) Export(ctx context.Context, req *collector.ExportTraceServiceRequest) (
	*collector.ExportTraceServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if got := strings.Join(md.Get("authorization"), ","); got != "Bearer "+secret {
		return nil, grpcstatus.Errorf(codes.Unauthenticated, "%s is not a token", got)
	}
	r.got = req
	return &collector.ExportTraceServiceResponse{}, nil
}

// compressions counts the messages that arrive compressed.
type compressions struct {
	stats.Handler
	gzip int
}

func (c *compressions) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c *compressions) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *compressions) HandleConn(context.Context, stats.ConnStats)                       {}

// HandleRPC implements stats.Handler.
func (c *compressions) HandleRPC(_ context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InHeader); ok && in.Compression == "gzip" {
		c.gzip++
	}
}

func TestHeadersAndCompressionByGRPC(t *testing.T) {
	certificates := httptest.NewTLSServer(http.NotFoundHandler()) // it has a certificate for 127.0.0.1
	defer certificates.Close()
	r, counts := &authorizedReceiver{}, &compressions{}
	at := listen(t, r, grpc.Creds(credentials.NewServerTLSFromCert(&certificates.TLS.Certificates[0])), grpc.StatsHandler(counts))
	to := Endpoint{URL: "grpcs://" + at, CAFile: certificateFile(t, certificates), Gzip: true,
		HeadersFile: writeFile(t, "headers", "Authorization: Bearer "+secret)}
	if err := SendTo(t.Context(), to, sample()); err != nil {
		t.Fatal(err)
	}
	if r.got == nil || len(otlptest.Spans(r.got)) != 5 || counts.gzip != 1 {
		t.Errorf("%d compressed messages, %v", counts.gzip, r.got)
	}
	to.HeadersFile = writeFile(t, "headers", "authorization: Bearer wrong-"+secret)
	err := SendTo(t.Context(), to, sample())
	if err == nil || !strings.Contains(err.Error(), "Unauthenticated: Bearer *** is not a token") {
		t.Errorf("%v", err)
	}
}

func TestBadHeaders(t *testing.T) {
	for text, want := range map[string]string{
		"Authorization " + secret:           "line 1 is not NAME: VALUE",
		"ok: x\n\nBearer " + secret + ": x": "line 3: the name of a header has characters",
		"x: " + secret + "\x01":             "the value of a header has characters",
		"Host: " + secret:                   "the header host cannot be set",
		"Content-Type: " + secret:           "the header content-type cannot be set",
		"grpc-timeout: 1S":                  "the header grpc-timeout cannot be set",
		strings.Repeat("x", 20000):          "has more than 16384 bytes",
		manyHeaders():                       "more than 32",
	} {
		err := Endpoint{URL: "http://localhost", HeadersFile: writeFile(t, "headers", text)}.Check()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		secret:                       "it must be NAME=VALUE",
		"x=%zz" + secret:             "not encoded as in URLs",
		"a b=" + secret:              "the name of a header",
		"x=a%0Ab":                    "the value of a header",
		strings.Repeat("x=y,", 5000): "more than 16384 bytes",
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", text)
		err := Endpoint{URL: "grpc://localhost"}.Check()
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_HEADERS") ||
			strings.Contains(err.Error(), secret) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	h := headers{"authorization": secret}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format, h); strings.Contains(text, secret) {
			t.Errorf("%s shows %s", format, text)
		}
	}
}

func manyHeaders() string {
	var out strings.Builder
	for i := range maxHeaders + 1 {
		fmt.Fprintf(&out, "x-%d: y\n", i)
	}
	return out.String()
}

// TestValuesOfHeadersAreInNoError checks ways in which an answer may quote a credential.
func TestValuesOfHeadersAreInNoError(t *testing.T) {
	const special = `p&ss"w<rd/1`
	h := headers{
		"authorization": "Bearer " + secret, "x-tenant": "s3cr", "x-key": special,
		"proxy-authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte("proa:hunter-two")),
	}
	quoted, err := json.Marshal(special)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"a value within another one":   "the token " + secret + " is wrong",
		"with a character between":     "the token s3cr3t-\x00t0ken is wrong",
		"cut by what comes before":     strings.Repeat("x", 195) + secret,
		"as JSON":                      `{"errors":[` + string(quoted) + `]} is`,
		"in a query":                   "?key=" + url.QueryEscape(special),
		"the password that was in it":  "the password hunter-two is wrong",
		"with many characters between": strings.Repeat("\x00", 790) + secret,
	} {
		got := h.readable(text)
		for _, part := range []string{"s3c", "3t-t", "t0ken", "hunter", "p&ss", `ss\"`, "%26ss"} {
			if strings.Contains(got, part) {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
	// The message of a partial success is decoded before it is shown.
	answer := `{"partialSuccess":{"rejectedSpans":"2","errorMessage":"` + strings.ReplaceAll(secret, "s", `\u0073`) + ` is wrong"}}`
	err = h.rejectedSpans([]byte(answer))
	if err == nil || strings.Contains(err.Error(), "t0ken") || !strings.Contains(err.Error(), "***") {
		t.Errorf("%v", err)
	}
}

func TestErrorOfTheConnectionHasNoCredential(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.Copy(io.Discard, r.Body) // otherwise the client may fail to write it
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s\r\n\r\n", r.Header.Get("Authorization"))
		}
	}()
	file := writeFile(t, "headers", "Authorization: Bearer "+secret)
	err = SendTo(t.Context(), Endpoint{URL: "http://" + l.Addr().String(), HeadersFile: file}, sample())
	if err == nil || !strings.Contains(err.Error(), "***") || strings.Contains(err.Error(), secret) {
		t.Errorf("%v", err)
	}
}
