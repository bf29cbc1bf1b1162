package route

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptrace"
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
		t.TLSClientConfig = &tls.Config{
			MinVersion: tls.VersionTLS12, ServerName: ref.Service + "." + ref.Namespace + ".svc",
			InsecureSkipVerify: ref.CA == "", //nolint:gosec // G402: Pods have certificates of their own making; who they are is known by their addresses
		}
		if ref.CA != "" {
			t.TLSClientConfig.RootCAs = x509.NewCertPool()
			t.TLSClientConfig.RootCAs.AppendCertsFromPEM([]byte(ref.CA)) // without any, nobody is trusted
		}
	default:
		t.Protocols.SetHTTP1(true)
	}
	return t
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
