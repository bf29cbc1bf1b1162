package route

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
	// idleFor is how long a connection is kept that nobody uses. Many servers close theirs after five seconds, and a request
	// that is sent at that very moment is lost.
	idleFor = 4 * time.Second
	maxIdle = 256
	// maxAnswerHeader bounds the header of an answer.
	maxAnswerHeader = 256 << 10
)

// newTransport makes the connections to one endpoint.
func newTransport(ref Ref) *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, &unreached{err}
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

// tlsTo says how endpoints of a backend prove who they are, and what they are shown.
func tlsTo(ref Ref) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: cmp.Or(ref.ServerName, ref.Service+"."+ref.Namespace+".svc"),
		InsecureSkipVerify: ref.CA == "" && !ref.SystemCA, //nolint:gosec // G402: Pods have certificates of their own making; who they are is known by their addresses
	}
	if ref.CA != "" {
		c.RootCAs = x509.NewCertPool()
		c.RootCAs.AppendCertsFromPEM([]byte(ref.CA)) // without any, nobody is trusted
	}
	if ref.AltNames != "" {
		c.InsecureSkipVerify = true //nolint:gosec // G402: VerifyConnection does it
		c.VerifyConnection = verifyAltNames(c.RootCAs, strings.Fields(ref.AltNames))
	}
	if ref.Identity != "" {
		pair, err := tls.X509KeyPair([]byte(ref.Identity), []byte(ref.Identity))
		if err == nil { // who makes rules has tried it
			c.Certificates = []tls.Certificate{pair}
		}
	}
	return c
}

// verifyAltNames accepts a certificate that the roots vouch for and that has one of the names.
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
			if !isURI && leaf.VerifyHostname(name) == nil || isURI && slices.ContainsFunc(leaf.URIs, func(u *url.URL) bool { return u.String() == name }) {
				return nil
			}
		}
		return errors.New("the certificate of the endpoint has none of the names that it must have")
	}
}

// unreached says that there was no connection, so that nothing can have been sent.
type unreached struct{ err error }

func (u *unreached) Error() string { return u.err.Error() }
func (u *unreached) Unwrap() error { return u.err }

// watchSent makes a request note when it gets a connection. Where there is TLS, a connection can fail after it was made.
func watchSent(r *http.Request, got *bool) *http.Request {
	return r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { *got = true },
	}))
}
