package machine

import (
	"context"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/node/nodestatus"
	"proa.dev/run"
	"proa.dev/run/machine/agentjoin"
	"proa.dev/run/machine/nodefolder"
)

// prepareCredentials gives a node of this machine what it would otherwise get for a join token: the certificates of the cluster's
// authority, and a client certificate; to the first node also those of the accounts that serve Ingresses and Gateways. newAuthority
// tells whether the node trusted another authority, or none, before.
func (s *Machine) prepareCredentials(ctx context.Context, f nodefolder.Node) (newAuthority bool, err error) {
	dir := filepath.Join(nodefolder.AgentDir(f.Dir), "pki")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, fmt.Errorf("make the folder of the node: %w", err)
	}
	all := []*nodestatus.Certificate{{
		File: filepath.Join(dir, agentjoin.ClientFile), Log: s.Log(), Issue: s.signClientCertificate,
		Wanted: func() *x509.CertificateRequest { return nodestatus.ClientRequest(f.Name) },
	}}
	if f.Number == 1 {
		all = append(all, s.accountCertificates()...)
	}
	file, ca := filepath.Join(dir, agentjoin.CAFile), s.CA()
	// An agent that trusts the authority that signs reads the rest of the bundle from the server.
	if kept, err := agentjoin.ReadTrust(file); err != nil || !kept.Contains(ca.Cert.Equal) {
		newAuthority = true
		// A certificate of another authority is not accepted.
		for _, cert := range all {
			if err := os.Remove(cert.File); err != nil && !errors.Is(err, os.ErrNotExist) {
				return false, fmt.Errorf("remove an old certificate: %w", err)
			}
		}
		if err := nodestatus.WriteFileAtomic(file, ca.PEM); err != nil {
			return false, fmt.Errorf("tell the node who vouches for the server: %w", err)
		}
	}
	for _, cert := range all {
		if err := cert.Load(); err != nil {
			return newAuthority, err
		}
		if cert.Current() != nil {
			continue
		}
		if err := cert.Renew(ctx); err != nil {
			return newAuthority, fmt.Errorf("make the certificate %s of node %s: %w", filepath.Base(cert.File), f.Name, err)
		}
	}
	return newAuthority, nil
}

// accountCertificates returns the client certificates of the accounts that serve Ingresses and Gateways. Only the server makes them, into
// the folder of the node beside it: there is no request by which a node could get one.
func (s *Machine) accountCertificates() (out []*nodestatus.Certificate) {
	for _, account := range proxyAccounts(&s.Config.Config) {
		out = append(out, &nodestatus.Certificate{
			File: accountFile(s.DataDir, account), Log: s.Log(), Issue: s.signClientCertificate,
			Wanted: func() *x509.CertificateRequest {
				who := run.Account(account)
				return &x509.CertificateRequest{Subject: pkix.Name{CommonName: who.GetName(),
					Organization: slices.DeleteFunc(who.GetGroups(), func(g string) bool { return g == user.AllAuthenticated })}}
			},
		})
	}
	return out
}

// renewAccounts keeps the certificates of the accounts valid until ctx ends. The agent cannot renew them itself.
func (s *Machine) renewAccounts(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, cert := range s.accountCertificates() {
		if err := cert.Load(); err != nil {
			s.Log().ErrorContext(ctx, "a certificate of the proxy cannot be read", "err", err)
			continue
		}
		wg.Go(func() { _ = cert.Run(ctx) }) // its only error is that ctx has ended
	}
}

func (s *Machine) signClientCertificate(_ context.Context, request []byte, _ crypto.Signer) ([]byte, error) {
	return s.Sign(request)
}
