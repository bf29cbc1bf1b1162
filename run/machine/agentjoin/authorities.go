package agentjoin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"proa.dev/run/credentials"
	"proa.dev/run/hostaddress"
	"proa.dev/run/machine/nodefolder"
)

// Authorities returns the certificate authorities that the agent trusts: those it has stored, those of its kubeconfig,
// or the one that the server shows and the join token names.
func (c *Agent) Authorities(ctx context.Context, dir string) (*Trust, error) {
	file := filepath.Join(dir, CAFile)
	kept, err := ReadTrust(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var certs []*x509.Certificate
	if kept != nil {
		if certs = c.newAuthorities(ctx, kept); certs == nil {
			return kept, nil
		}
	} else if certs, err = c.firstAuthorities(ctx); err != nil {
		return nil, err
	}
	// A certificate of another authority is not accepted, and the stored settings may be those of another cluster.
	if kept == nil || !slices.ContainsFunc(certs, func(x *x509.Certificate) bool { return kept.Contains(x.Equal) }) {
		for _, old := range []string{filepath.Join(dir, ClientFile), nodefolder.SettingsFile(c.DataDir),
			nodefolder.ServersFile(c.DataDir)} {
			if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("remove what is left of another cluster: %w", err)
			}
		}
	}
	return newTrust(file, certs...)
}

// firstAuthorities returns the authorities for an agent that has stored none.
func (c *Agent) firstAuthorities(ctx context.Context) ([]*x509.Certificate, error) {
	if c.Login != nil {
		return c.kubeconfigAuthorities()
	}
	token, err := credentials.ParseJoinToken(c.Token)
	if err != nil {
		return nil, err
	}
	cert, err := c.authorityNamedByToken(ctx, token)
	return []*x509.Certificate{cert}, err
}

// kubeconfigAuthorities returns the authorities that the kubeconfig names.
func (c *Agent) kubeconfigAuthorities() ([]*x509.Certificate, error) {
	certs, err := parseBundle(c.Login.CA)
	if err != nil {
		return nil, fmt.Errorf("the certificate-authority of the kubeconfig %s: %w", c.Login.File, err)
	}
	return certs, nil
}

// newAuthorities returns authorities that replace the stored ones: the cluster has a new one, and the token or the
// kubeconfig names it. Otherwise it returns nil, because an old token or kubeconfig is no reason to distrust what is
// stored.
func (c *Agent) newAuthorities(ctx context.Context, kept *Trust) []*x509.Certificate {
	if c.Login != nil {
		certs, err := c.kubeconfigAuthorities()
		if err != nil || c.isTrustedBy(ctx, kept.Pool()) {
			return nil
		}
		pool := x509.NewCertPool()
		for _, x := range certs {
			pool.AddCert(x)
		}
		if !c.isTrustedBy(ctx, pool) {
			return nil
		}
		return certs
	}
	token, err := credentials.ParseJoinToken(c.Token)
	if err != nil || kept.Contains(token.Names) {
		return nil
	}
	cert, err := c.authorityNamedByToken(ctx, token)
	if err != nil {
		return nil
	}
	return []*x509.Certificate{cert}
}

// isTrustedBy tells whether the server can be reached and shows a certificate that one of these authorities has signed.
func (c *Agent) isTrustedBy(ctx context.Context, by *x509.CertPool) bool {
	addr, err := HostPort(c.Server)
	if err != nil {
		return false
	}
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: &tls.Config{RootCAs: by, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// authorityNamedByToken returns the certificate of the authority that the token names, if the server shows it in its
// chain or in the ConfigMap kube-public/cluster-info. A server that does not is not trusted.
func (c *Agent) authorityNamedByToken(ctx context.Context, token credentials.JoinToken) (*x509.Certificate, error) {
	u, err := url.Parse(c.Server)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not a URL such as https://192.0.2.7:6443", c.Server)
	}
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: &tls.Config{
		InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, //nolint:gosec // G402: what it shows is compared with the token
	}}
	addr, err := HostPort(c.Server)
	if err != nil {
		return nil, err
	}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("reach the server: %w", err)
	}
	defer conn.Close()
	for _, cert := range conn.(*tls.Conn).ConnectionState().PeerCertificates {
		if token.Names(cert) {
			return cert, nil
		}
	}
	cert, err := authorityFromClusterInfo(ctx, u, token)
	if err != nil {
		return nil, fmt.Errorf("the server at %s does not show that it is the one the token is for: the authority that the token names is not in its chain of certificates, and %w; "+
			"make a new token there, or join with --kubeconfig, which has the certificate of the authority", c.Server, err)
	}
	return cert, nil
}

// LocalAddress returns the address of this machine from which the server is reached, at which others reach the node. A server that is
// reached at a loopback address is on this machine, and chooses the same address for others.
func (c *Agent) LocalAddress() (netip.Addr, error) {
	addr, err := HostPort(c.Server)
	if err != nil {
		return netip.Addr{}, err
	}
	if a, err := netip.ParseAddrPort(addr); err == nil && a.Addr().IsLoopback() {
		return hostaddress.External(a, c.Node.IPs, c.ServiceCIDRs).Addr(), nil
	}
	conn, err := net.Dial("udp", addr) // nothing is sent
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the way to the server: %w", err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// UseServerThatAnswers sets Server to the first of several Servers that accepts a connection.
func (c *Agent) UseServerThatAnswers(ctx context.Context) {
	if len(c.Servers) < 2 {
		return
	}
	dial := net.Dialer{Timeout: 2 * time.Second}
	for _, u := range c.Servers {
		addr, err := HostPort(u)
		if err != nil {
			continue
		}
		if conn, err := dial.DialContext(ctx, "tcp", addr); err == nil {
			_ = conn.Close()
			c.Server = u
			return
		}
	}
}

// HostPort returns the host and port of a URL.
func HostPort(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("the address of the server: %w", err)
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}
