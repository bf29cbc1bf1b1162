package machine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"proa.dev/client"
	"proa.dev/client/remote"
	"proa.dev/kinds/gr"
	"proa.dev/node/self"
	"proa.dev/run"
)

// RunAgent runs a node of a cluster elsewhere until ctx ends. onReady is called when it has joined.
func RunAgent(ctx context.Context, config run.AgentConfig, log *slog.Logger, onReady func()) error {
	c := agent{config}
	dir := filepath.Join(nodeDir(c.DataDir), "pki")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of the node: %w", err)
	}
	known, err := c.authority(ctx, dir)
	if err != nil {
		return err
	}
	cert, joined, err := c.join(ctx, dir, known.Pool(), log)
	if err != nil {
		return err
	}
	speaks := func() *tls.Config {
		return &tls.Config{RootCAs: known.Pool(), GetClientCertificate: cert.Present, MinVersion: tls.VersionTLS12}
	}
	kubelet, err := remote.New(ctx, remote.Config{URL: c.Server, Agent: "proa-agent", Log: log, TLS: speaks(), Roots: known.Pool, Dial: dialFrom(c.Node.IPs)})
	if err != nil {
		return err
	}
	defer kubelet.Close()
	cert.Issue = self.Ask(func() client.Client { return kubelet }, certificatesv1.KubeAPIServerClientKubeletSignerName)
	cert.Changed = kubelet.Renew
	p := place{
		NodeConfig: c.Node, dataDir: c.DataDir, client: kubelet, serviceCIDRs: c.ServiceCIDRs, clusterCIDRs: c.ClusterCIDRs(), find: c.wayTo,
		issue:     self.Ask(func() client.Client { return kubelet }, certificatesv1.KubeletServingSignerName),
		clientCAs: known.Pool, log: log, servers: &servers{c.Server, speaks, known},
		persist: func(ctx context.Context, name string, part func() error) { run.Persist(ctx, log, name, part) },
	}
	go func() {
		if joined {
			c.replaceFirst(ctx, kubelet, cert, log)
		}
		_ = cert.Run(ctx) // it ends with ctx, and has nothing to give back
	}()
	go p.persist(ctx, "trust", func() error { return known.follow(ctx, kubelet, log, kubelet.Renew) })
	if onReady != nil {
		onReady()
	}
	p.persist(ctx, "node", func() error { return p.run(ctx) })
	return nil
}

// What an agent keeps of the certificates of others and of its own: whom it believes, and with what it speaks.
const (
	caFile     = "ca.pem"
	clientFile = "client.pem"
)

// agent is a node in a process of its own.
type agent struct{ run.AgentConfig }

// join is the certificate with which the node speaks: what it has, or a new one for its token, if joined says so.
func (c *agent) join(ctx context.Context, dir string, pool *x509.CertPool, log *slog.Logger) (cert *self.Certificate, joined bool, err error) {
	cert = &self.Certificate{
		File: filepath.Join(dir, clientFile), Log: log, Wanted: func() *x509.CertificateRequest { return self.ClientRequest(c.Node.Name) },
	}
	if err := cert.Load(); err != nil {
		return nil, false, err
	}
	if cert.Current() != nil {
		return cert, false, nil
	}
	token, err := run.ParseToken(c.Token)
	if err != nil {
		return nil, false, err
	}
	first, err := remote.New(ctx, remote.Config{
		URL: c.Server, Agent: "proa-agent", Log: log, TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		Token: func() (string, error) { return token.Bearer(), nil },
	})
	if err != nil {
		return nil, false, err
	}
	defer first.Close()
	cert.Issue = self.Ask(func() client.Client { return first }, certificatesv1.KubeAPIServerClientKubeletSignerName)
	err = cert.Renew(ctx)
	if self.IsRefused(err) { // the cluster says why, and what to do
		return nil, false, fmt.Errorf("join the cluster at %s as node %s: %w", c.Server, c.Node.Name, err)
	}
	if err != nil {
		return nil, false, fmt.Errorf("join the cluster at %s: %w (has the token expired? \"proa token create\" makes a new one)", c.Server, err)
	}
	return cert, true, nil
}

// replaceFirst replaces the certificate that a token gave, which is good for a day, as soon as the node is registered. Otherwise
// a machine that is switched off on its first day would have to join again.
func (c *agent) replaceFirst(ctx context.Context, kubelet client.Client, cert *self.Certificate, log *slog.Logger) {
	renew := func() error {
		looking, stop := context.WithCancel(ctx)
		defer stop()
		node, err := kubelet.Part(looking, gr.Nodes, client.Scope{Name: c.Node.Name})
		if err != nil {
			return err
		}
		for e := range node.Events(looking) {
			if e.Object != nil && !e.Deleted {
				return cert.Renew(ctx)
			}
		}
		return context.Cause(ctx)
	}
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		err := renew()
		if err == nil || ctx.Err() != nil {
			return
		}
		log.ErrorContext(ctx, "the first certificate of the node cannot be replaced yet", "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// authority is whom the agent believes: the certificates that it has kept, or the one that the server shows and the token names.
func (c *agent) authority(ctx context.Context, dir string) (*trust, error) {
	file := filepath.Join(dir, caFile)
	kept, err := readTrust(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var cert *x509.Certificate
	if kept != nil {
		if cert = c.another(ctx, kept); cert == nil {
			return kept, nil
		}
	} else if cert, err = c.first(ctx); err != nil {
		return nil, err
	}
	// What another authority has signed is of no use.
	if err := os.Remove(filepath.Join(dir, clientFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove an old certificate: %w", err)
	}
	return newTrust(file, cert)
}

// first is the authority that an agent believes which has kept none.
func (c *agent) first(ctx context.Context) (*x509.Certificate, error) {
	token, err := run.ParseToken(c.Token)
	if err != nil {
		return nil, err
	}
	return c.shown(ctx, token)
}

// another is an authority that the token names, the server shows, and the agent has not kept: the cluster has got a new one, and
// the node joins again, with a token that was made for it. Otherwise it is nil, since an old token says nothing against what is kept.
func (c *agent) another(ctx context.Context, kept *trust) *x509.Certificate {
	token, err := run.ParseToken(c.Token)
	if err != nil || kept.names(token.Names) {
		return nil
	}
	cert, err := c.shown(ctx, token)
	if err != nil {
		return nil
	}
	return cert
}

// shown is the certificate of the authority that the token names, if the server shows it. A server that cannot is not believed.
func (c *agent) shown(ctx context.Context, token run.Token) (*x509.Certificate, error) {
	u, err := url.Parse(c.Server)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not a URL such as https://192.0.2.7:6443", c.Server)
	}
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: &tls.Config{
		InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, //nolint:gosec // G402: what it shows is compared with the token
	}}
	conn, err := dialer.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, fmt.Errorf("reach the server: %w", err)
	}
	defer conn.Close()
	for _, cert := range conn.(*tls.Conn).ConnectionState().PeerCertificates {
		if token.Names(cert.Raw) {
			return cert, nil
		}
	}
	return nil, fmt.Errorf("the server at %s is not the one the token is for", c.Server)
}

// wayTo is the address of this machine from which the server is reached: that is how others reach the node.
func (c *agent) wayTo() (netip.Addr, error) {
	u, err := url.Parse(c.Server)
	if err != nil {
		return netip.Addr{}, err
	}
	conn, err := net.Dial("udp", u.Host) // nothing is sent
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the way to the server: %w", err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}
