package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"proa.dev/run"
	"proa.dev/run/pki"
)

// serveEtcd answers health checks until ctx ends.
func serveEtcd(ctx context.Context, _ *slog.Logger, f flags) error {
	at, err := url.Parse(f.last("listen-client-urls"))
	if err != nil {
		return fmt.Errorf("--listen-client-urls: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", at.Host)
	if err != nil {
		return err
	}
	return healthy(ctx, listener)
}

// healthy answers requests to /health until ctx ends.
func healthy(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"health":"true"}`) })
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// serveAPI runs the API server of proa until ctx ends. Its data folder is in that of the certificates, which envtest removes.
func serveAPI(ctx context.Context, log *slog.Logger, f flags) error {
	c := run.Default()
	if err := f.settings(&c); err != nil {
		return err
	}
	dir := f.last("cert-dir")
	if dir == "" {
		return errors.New("--cert-dir is missing: data are kept there too")
	}
	serving, err := tls.LoadX509KeyPair(filepath.Join(dir, "apiserver.crt"), filepath.Join(dir, "apiserver.key"))
	if err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	c.ServingCertificate = &serving
	c.DataDir, c.Listen = filepath.Join(dir, "proa"), net.JoinHostPort(f.last("bind-address"), f.last("secure-port"))
	c.ShutdownTimeout = 2 * time.Second // suites stop the server while managers still watch
	if len(c.Controllers) == 0 {
		c.Controllers = ownControllers()
	}
	if err := trust(c.DataDir, f.last("client-ca-file")); err != nil {
		return err
	}
	return run.Serve(ctx, c, log, func(*run.Server) {})
}

// ownControllers returns the controllers that kube-apiserver contains, which definitions and APIServices need to be served.
func ownControllers() []string {
	return []string{
		"crd-finalizer", "crd-status-controller", "autoregister", "local-availability-controller", "aggregated-availability-controller",
		"flow-schema-controller", "cluster-authentication-trust-controller", "validatingadmissionpolicy-status-controller",
	}
}

// trust creates the keys of the server, and adds the certificate authority of a file to its own: envtest signs the certificates
// of users with its own certificate authority.
func trust(data, authority string) error {
	if authority == "" {
		return nil
	}
	additional, err := os.ReadFile(authority)
	if err != nil {
		return fmt.Errorf("--client-ca-file: %w", err)
	}
	keys, err := pki.Ensure(filepath.Join(data, "pki"), pki.Options{})
	if err != nil {
		return err
	}
	return os.WriteFile(keys.File("ca.crt"), slices.Concat(keys.CA().PEM, additional), 0o644)
}
