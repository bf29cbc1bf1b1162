package kubeletapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"proa.dev/internal/connlimit"
)

// Listen serves until ctx ends. The certificate is asked for with every connection, so that it may be renewed. Streams
// end with the process.
func (s *Server) Listen(ctx context.Context, l net.Listener, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // streams begin as HTTP/1.1, and other responses are small
	h := &http.Server{
		Handler: s, Protocols: protocols, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: certificate,
			// A client without a certificate may have a token.
			ClientAuth: tls.RequestClientCert,
		},
		ConnContext: connlimit.WithConn, ConnState: connlimit.ConnState,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 90 * time.Second, MaxHeaderBytes: 1 << 20,
	}
	stop := context.AfterFunc(ctx, func() { _ = h.Close() })
	defer stop()
	l = s.Connections.Listener(l, "kubelet-api", connlimit.Unauthenticated)
	if err := h.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the node at %s: %w", l.Addr(), err)
	}
	return nil
}
