package run

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"

	"proa.dev/server"
	"proa.dev/server/authn"
	"proa.dev/server/h2"
)

// The HTTP/2 servers that the setting http2 chooses from: the one of package h2, and the one of net/http.
const (
	ownHTTP2 = "own"
	stdHTTP2 = "std"
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

// httpSettings are the settings of the listener for HTTP.
func httpSettings() []Setting {
	return []Setting{{Name: "http2", Help: "speak HTTP/2 by `WHICH` server: own, which needs less CPU, or std, the one of Go's net/http",
		Set: one(func(c *Config, v string) error {
			c.HTTP2 = v
			return oneOf(v, ownHTTP2, stdHTTP2)
		})}}
}

// newHTTPServer makes the server of the API's port. It serves HTTP/1.1 by net/http, and HTTP/2 by the server that was chosen.
func (s *Server) newHTTPServer() *http.Server {
	h := &http.Server{
		Handler: s.front, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		TLSConfig:         authn.ServerTLS(s.servingCert),
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ConnContext: server.WithSocket,
	}
	h.TLSConfig.CipherSuites = h2.CipherSuites() // of TLS 1.2; HTTP/2 allows no others
	if s.HTTP2 == stdHTTP2 {
		h.HTTP2 = standardHTTP2()
		return h
	}
	h2.Attach(h, h2.Config{Streams: maxStreams, Header: maxHeaderBytes, Greeting: readHeaderTimeout, Idle: idleTimeout, Log: s.log})
	return h
}

// servingCert is the certificate that the API's port shows.
func (s *Server) servingCert(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if s.Serving != nil {
		return s.Serving, nil
	}
	return s.pki.ServingCert(hello)
}

// standardHTTP2 bounds the HTTP/2 server of net/http. A connection buffers as many bytes of bodies that nobody reads yet, and takes as large frames, as
// one of package h2; a client that takes nothing of an answer, or does not answer a ping, is given up as soon.
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
