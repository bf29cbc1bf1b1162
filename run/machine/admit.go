package machine

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"proa.dev/node/nodestatus"
)

// admit gives a further node what it would otherwise get for a token: the certificates of the authority, and one of its own.
// The server that starts it has the authority at hand. fresh says that it knew another authority, or none, before.
func (s *Machine) admit(ctx context.Context, f further) (fresh bool, err error) {
	dir := filepath.Join(nodeDir(f.dir), "pki")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, fmt.Errorf("make the folder of the node: %w", err)
	}
	cert := &nodestatus.Certificate{
		File: filepath.Join(dir, clientFile), Log: s.Log(), Issue: s.vouch,
		Wanted: func() *x509.CertificateRequest { return nodestatus.ClientRequest(f.name) },
	}
	file, ca := filepath.Join(dir, caFile), s.CA()
	// An agent that knows who signs learns the rest of the bundle by itself.
	if kept, err := readTrust(file); err != nil || !kept.names(ca.Cert.Equal) {
		fresh = true
		// What another authority has signed is of no use.
		if err := os.Remove(cert.File); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, fmt.Errorf("remove an old certificate: %w", err)
		}
		if err := nodestatus.Put(file, ca.PEM); err != nil {
			return false, fmt.Errorf("tell the node who vouches for the server: %w", err)
		}
	}
	if err := cert.Load(); err != nil {
		return fresh, err
	}
	if cert.Current() != nil {
		return fresh, nil
	}
	if err := cert.Renew(ctx); err != nil {
		return fresh, fmt.Errorf("make the certificate of node %s: %w", f.name, err)
	}
	return fresh, nil
}
