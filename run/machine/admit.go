package machine

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"proa.dev/node/nodestatus"
	"proa.dev/run/machine/agentjoin"
	"proa.dev/run/machine/nodefolder"
)

// prepareCredentials gives a further node what it would otherwise get for a join token: the certificates of the cluster's authority,
// and a client certificate. newAuthority tells whether the node trusted another authority, or none, before.
func (s *Machine) prepareCredentials(ctx context.Context, f nodefolder.Node) (newAuthority bool, err error) {
	dir := filepath.Join(nodefolder.AgentDir(f.Dir), "pki")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, fmt.Errorf("make the folder of the node: %w", err)
	}
	cert := &nodestatus.Certificate{
		File: filepath.Join(dir, agentjoin.ClientFile), Log: s.Log(), Issue: s.signClientCertificate,
		Wanted: func() *x509.CertificateRequest { return nodestatus.ClientRequest(f.Name) },
	}
	file, ca := filepath.Join(dir, agentjoin.CAFile), s.CA()
	// An agent that trusts the authority that signs reads the rest of the bundle from the server.
	if kept, err := agentjoin.ReadTrust(file); err != nil || !kept.Contains(ca.Cert.Equal) {
		newAuthority = true
		// A certificate of another authority is not accepted.
		if err := os.Remove(cert.File); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, fmt.Errorf("remove an old certificate: %w", err)
		}
		if err := nodestatus.WriteFileAtomic(file, ca.PEM); err != nil {
			return false, fmt.Errorf("tell the node who vouches for the server: %w", err)
		}
	}
	if err := cert.Load(); err != nil {
		return newAuthority, err
	}
	if cert.Current() != nil {
		return newAuthority, nil
	}
	if err := cert.Renew(ctx); err != nil {
		return newAuthority, fmt.Errorf("make the certificate of node %s: %w", f.Name, err)
	}
	return newAuthority, nil
}
