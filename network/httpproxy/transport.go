package httpproxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	dialTimeout = 3 * time.Second
	// idleFor is how long an idle connection is kept. Many servers close theirs after five seconds, and a request that
	// is sent at that moment fails.
	idleFor = 4 * time.Second
	maxIdle = 256
	// maxAnswerHeader bounds the header of a response.
	maxAnswerHeader = 256 << 10
)

// newTransport returns the transport for one endpoint.
func newTransport(ref Ref) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, &dialError{err}
			}
			return c, nil
		},
		DisableCompression: true, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idleFor,
		ExpectContinueTimeout: time.Second, TLSHandshakeTimeout: dialTimeout, MaxResponseHeaderBytes: maxAnswerHeader,
		Protocols: new(http.Protocols),
		HTTP2:     &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	switch ref.Protocol {
	case H2C, GRPC:
		t.Protocols.SetUnencryptedHTTP2(true)
	case HTTPS:
		t.Protocols.SetHTTP1(true)
		t.Protocols.SetHTTP2(true)
		t.TLSClientConfig = tlsTo(ref)
	default:
		t.Protocols.SetHTTP1(true)
	}
	return t
}

// tlsTo returns the TLS configuration for the endpoints of a backend.
func tlsTo(ref Ref) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: cmp.Or(ref.ServerName, ref.Service+"."+ref.Namespace+".svc"),
		// Pods have certificates of their own making; who they are is known by their addresses.
		InsecureSkipVerify: ref.CA == "" && !ref.SystemCA, //nolint:gosec // G402: see above
	}
	if ref.CA != "" {
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM([]byte(ref.CA)) // without any, no endpoint is trusted
	}
	if ref.AltNames != "" {
		c.InsecureSkipVerify = true // VerifyConnection does it
		c.VerifyConnection = verifyAltNames(c.RootCAs, strings.Fields(ref.AltNames))
	}
	if ref.Identity != "" {
		pair, err := tls.X509KeyPair([]byte(ref.Identity), []byte(ref.Identity))
		if err == nil { // the rules were made from a valid pair
			c.Certificates = []tls.Certificate{pair}
		}
	}
	return c
}

// verifyAltNames accepts a certificate that the roots verify and that has one of the names.
func verifyAltNames(roots *x509.CertPool, names []string) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("the endpoint shows no certificate")
		}
		leaf, between := s.PeerCertificates[0], x509.NewCertPool()
		for _, c := range s.PeerCertificates[1:] {
			between.AddCert(c)
		}
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between}); err != nil {
			return err
		}
		for _, name := range names {
			isURI := strings.Contains(name, "://")
			if !isURI && leaf.VerifyHostname(name) == nil || isURI &&
				slices.ContainsFunc(leaf.URIs, func(u *url.URL) bool { return u.String() == name }) {
				return nil
			}
		}
		return errors.New("the certificate of the endpoint has none of the names that it must have")
	}
}

// dialError means that there was no connection, so that nothing can have been sent.
type dialError struct{ err error }

func (u *dialError) Error() string { return u.err.Error() }
func (u *dialError) Unwrap() error { return u.err }

// watchSent makes a request record when it gets a connection. A TLS connection can fail after that.
func watchSent(r *http.Request, got *bool) *http.Request {
	return r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { *got = true },
	}))
}
