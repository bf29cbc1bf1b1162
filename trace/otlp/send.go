package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"proa.dev/trace"
)

// Send sends a trace to the OTLP receiver at addr, such as http://localhost:4318, localhost:4318 or grpc://localhost:4317. The certificate
// of an https or grpcs URL is verified by the certificate authorities of the system.
func Send(ctx context.Context, addr string, t *trace.Trace) error {
	return SendTo(ctx, Endpoint{URL: addr}, t)
}

// SendTo sends a trace to an endpoint.
func SendTo(ctx context.Context, to Endpoint, t *trace.Trace) error {
	s, err := to.open()
	if err != nil {
		return err
	}
	defer s.close()
	return s.send(ctx, requestOf(t))
}

// Endpoint is the address of an OTLP receiver.
type Endpoint struct {
	// URL is http:// or https:// for OTLP/HTTP, or grpc:// or grpcs:// for OTLP/gRPC, with a host and a port. Without a path, spans go to
	// /v1/traces by HTTP, as OTLP demands.
	URL string
	// CAFile has the certificate authorities that sign the receiver's certificate; empty for those of the system.
	CAFile string
	// HeadersFile has headers that are sent with every request, such as a credential: NAME: VALUE in each line. Those of the environment
	// variables OTEL_EXPORTER_OTLP_HEADERS and OTEL_EXPORTER_OTLP_TRACES_HEADERS are sent too.
	HeadersFile string
	// Gzip compresses what is sent.
	Gzip bool
}

// Check returns what is wrong with an endpoint.
func (e Endpoint) Check() error {
	s, err := e.open()
	if err == nil {
		s.close()
	}
	return err
}

const (
	// postTimeout is how long one request may take.
	postTimeout = 10 * time.Second
	// maxAnswer is how much of an answer is read.
	maxAnswer = 64 << 10
)

// The schemes of endpoints.
const schemeHTTP, schemeHTTPS, schemeGRPC, schemeGRPCS = "http", "https", "grpc", "grpcs"

// sender sends batches to one endpoint.
type sender interface {
	send(ctx context.Context, r *exportRequest) error
	close()
}

// httpSender sends batches by OTLP/HTTP, as JSON.
type httpSender struct {
	Endpoint
	url  string
	http *http.Client
}

func (s *httpSender) close() { s.http.CloseIdleConnections() }

// open checks an endpoint, and returns what sends to it.
func (e Endpoint) open() (sender, error) {
	at, err := parseURL(e.URL)
	if err != nil {
		return nil, err
	}
	if _, err := e.headers(); err != nil {
		return nil, err
	}
	if at.Scheme == schemeGRPC || at.Scheme == schemeGRPCS {
		return e.newGRPCSender(at.Scheme, at.Host)
	}
	config, err := e.tls()
	if err != nil {
		return nil, err
	}
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: postTimeout}).DialContext,
		TLSHandshakeTimeout: postTimeout, IdleConnTimeout: 90 * time.Second, MaxIdleConns: 2, MaxResponseHeaderBytes: maxAnswer,
		TLSClientConfig: config,
	}
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &httpSender{e, at.String(), &http.Client{Transport: t, Timeout: postTimeout, CheckRedirect: refuse}}, nil
}

// tls returns how the certificate of the receiver is verified.
func (e Endpoint) tls() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.CAFile == "" {
		return out, nil
	}
	pem, err := os.ReadFile(e.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate authorities of the OTLP receiver: %w", err)
	}
	out.RootCAs = x509.NewCertPool()
	if !out.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM", e.CAFile)
	}
	return out, nil
}

// parseURL returns the URL to which spans are sent. An address without a scheme is that of OTLP/gRPC if it has the port of that protocol,
// and else of OTLP/HTTP.
func parseURL(addr string) (*url.URL, error) {
	switch {
	case addr == "" || strings.Contains(addr, "://"):
	case strings.HasSuffix(addr, ":"+portGRPC):
		addr = schemeGRPC + "://" + addr
	default:
		addr = schemeHTTP + "://" + addr
	}
	u, err := url.Parse(addr)
	switch {
	case err != nil:
		return nil, errors.New("the OTLP endpoint is not a URL such as http://localhost:4318") // the error may hold a password
	case !slices.Contains([]string{schemeHTTP, schemeHTTPS, schemeGRPC, schemeGRPCS}, u.Scheme):
		return nil, fmt.Errorf("the OTLP endpoint must begin with http://, https://, grpc:// or grpcs://, not %q", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("the OTLP endpoint has no host; give one as in http://localhost:4318")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the OTLP endpoint must be a URL without user, query and fragment, as in http://localhost:4318")
	}
	isGRPC := u.Scheme == schemeGRPC || u.Scheme == schemeGRPCS
	switch hasPath := u.Path != "" && u.Path != "/"; {
	case isGRPC && hasPath:
		return nil, errors.New("the OTLP endpoint must be a URL without a path for OTLP/gRPC, as in grpc://localhost:4317")
	case isGRPC && u.Port() == "":
		u.Host += ":" + portGRPC
	case !isGRPC && !hasPath:
		u.Path = "/v1/traces"
	}
	return u, nil
}

// portGRPC is the port of OTLP/gRPC.
const portGRPC = "4317"

// refusedError is the answer of a receiver that did not take a batch.
type refusedError struct {
	url, status, text string
	code              int // of HTTP; 0 for an answer by gRPC
	// temporary says that OTLP wants the batch to be sent again later, after retryAfter if that is not 0.
	temporary  bool
	retryAfter time.Duration
}

// Error implements error.
func (e *refusedError) Error() string {
	text := "send spans to " + e.url + ": the receiver answered " + e.status
	if e.text != "" {
		text += ": " + e.text
	}
	switch {
	case e.code >= 300 && e.code < 400:
		text += " (redirects are not followed)"
	case e.code == http.StatusNotFound || e.code == http.StatusMethodNotAllowed:
		text += " (is it an OTLP/HTTP receiver? its port is usually 4318)"
	}
	return text
}

// partialError says that a receiver took a batch, but not all of its spans.
type partialError struct {
	spans int64
	text  string
}

// Error implements error.
func (e *partialError) Error() string {
	return fmt.Sprintf("the receiver rejected %d spans: %s", e.spans, e.text)
}

// isTemporaryStatus reports whether OTLP wants a batch to be sent again later that was answered with a status code of HTTP.
func isTemporaryStatus(code int) bool {
	switch code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// send sends a batch once.
func (s *httpSender) send(ctx context.Context, r *exportRequest) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	if s.Gzip {
		body = compress(body)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("send spans: %w", err)
	}
	secret, err := s.headers()
	if err != nil {
		return fmt.Errorf("send spans: %w", err)
	}
	req.Header.Set("User-Agent", "proa")
	for name, value := range secret {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	if s.Gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := s.http.Do(req)
	if err != nil {
		if strings.Contains(err.Error(), "malformed HTTP response") {
			err = fmt.Errorf("%w (is this the port of OTLP/gRPC? then begin the address with grpc://)", err)
		}
		return &redactedError{"send spans: " + secret.redact(printable(err.Error())), err}
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("send spans to %s: read the answer: %w", s.url, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return &refusedError{url: s.url, status: secret.readable(resp.Status), code: resp.StatusCode,
			text:      secret.readable(errorText(answer)),
			temporary: isTemporaryStatus(resp.StatusCode), retryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	}
	return secret.rejectedSpans(answer)
}

// compress returns a body compressed with gzip.
func compress(body []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(body) // a buffer takes everything
	_ = w.Close()
	return out.Bytes()
}

// errorText returns the message of an answer: a Status of gRPC in JSON, or plain text.
func errorText(answer []byte) string {
	var s struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(answer, &s) == nil {
		return s.Message
	}
	return string(answer)
}

// rejectedSpans returns an error if a receiver took only a part of a batch. An answer that says nothing is a success.
func (h headers) rejectedSpans(answer []byte) error {
	var a struct {
		PartialSuccess struct {
			RejectedSpans json.Number `json:"rejectedSpans"`
			ErrorMessage  string      `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(answer, &a) != nil {
		return nil
	}
	if n, err := a.PartialSuccess.RejectedSpans.Int64(); err == nil && n > 0 {
		return &partialError{spans: n, text: h.readable(a.PartialSuccess.ErrorMessage)}
	}
	return nil
}

// retryAfter reads the header Retry-After, which is a number of seconds or a time; 0 if there is none.
func retryAfter(text string, now time.Time) time.Duration {
	d := time.Duration(0)
	if n, err := strconv.Atoi(text); err == nil {
		d = time.Duration(min(max(n, 0), 1e6)) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxPause)
}

// maxPause is the longest pause before a batch is sent again.
const maxPause = time.Minute

// printable returns a foreign text without control characters.
func printable(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "")))
}

// shorten returns the beginning of a text, for error messages.
func shorten(text string) string {
	const most = 200
	if len(text) > most {
		text = strings.TrimSpace(strings.ToValidUTF8(text[:most], "")) + "..."
	}
	return text
}
