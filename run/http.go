package run

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"

	"proa.dev/internal/connlimit"
	"proa.dev/run/settings"
	"proa.dev/server/authn"
	"proa.dev/server/h2"
	"proa.dev/server/responsewriter"
)

// Limits of HTTP connections that hold with both HTTP/2 servers.
const (
	// maxStreams is how many requests an HTTP/2 connection may have at a time; kube-apiserver allows as many.
	maxStreams = 250
	// maxHeaderBytes bounds the header of one request; kube-apiserver has the default of net/http, which is the same.
	maxHeaderBytes = 1 << 20
	// readHeaderTimeout is how long a client may take for the header of a request, or for the HTTP/2 preface.
	readHeaderTimeout = 10 * time.Second
	// idleTimeout is how long a connection without requests is kept.
	idleTimeout = 90 * time.Second
)

// newHTTPServer returns the HTTP server of the API's port. HTTP/1.1 is served by net/http, HTTP/2 by the server that
// the setting http2 chooses.
func (s *Server) newHTTPServer() *http.Server {
	h := &http.Server{
		Handler: s.api, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		TLSConfig:         authn.ServerTLS(s.servingCert),
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ConnContext: responsewriter.WithSocket, ConnState: connlimit.ConnState,
	}
	h.TLSConfig.CipherSuites = h2.CipherSuites() // of TLS 1.2; HTTP/2 allows no others
	if s.HTTP2 == settings.StdHTTP2 {
		h.HTTP2 = standardHTTP2()
		return h
	}
	h2.Attach(h, h2.Config{Streams: maxStreams, Header: maxHeaderBytes, Greeting: readHeaderTimeout, Idle: idleTimeout, Log: s.log})
	return h
}

// servingCert returns the certificate of the API's port.
func (s *Server) servingCert(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if s.ServingCertificate != nil {
		return s.ServingCertificate, nil
	}
	return s.pki.ServingCert(hello)
}

// standardHTTP2 gives the HTTP/2 server of net/http the limits that package h2 has: for buffered request bodies, frame
// sizes, stalled readers and pings.
func standardHTTP2() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          maxStreams,
		MaxReadFrameSize:              16 << 10,
		MaxReceiveBufferPerConnection: h2.ConnectionWindow(maxStreams),
		MaxReceiveBufferPerStream:     h2.StreamWindow,
		SendPingTimeout:               30 * time.Second,
		PingTimeout:                   15 * time.Second,
		WriteByteTimeout:              2 * time.Minute,
	}
}
