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
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/client/remote"
	"proa.dev/kinds/gr"
	"proa.dev/node/nodestatus"
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
	refused := &refusedWatches{node: c.Node.Name, log: log, failed: map[schema.GroupResource]error{}}
	kubelet, err := remote.New(ctx, remote.Config{
		URL: c.Server, Agent: "proa-agent", Log: log, TLS: speaks(), Roots: known.Pool, Dial: dialFrom(c.Node.IPs), Refused: refused.set,
	})
	if err != nil {
		return err
	}
	defer kubelet.Close()
	cert.Issue = nodestatus.Ask(func() client.Client { return kubelet }, certificatesv1.KubeAPIServerClientKubeletSignerName)
	cert.Changed = kubelet.Renew
	if err := nodestatus.CheckFree(ctx, kubelet, nodestatus.Config{Name: c.Node.Name, Data: nodeDir(c.DataDir)}, log); nodestatus.IsTaken(err) {
		return err
	}
	l := &learner{client: kubelet, file: settingsFile(c.DataDir), log: log}
	learned, err := l.learn(ctx)
	if err != nil {
		return err
	}
	if _, err := c.Agree(learned); err != nil {
		return err
	}
	go func() {
		if joined && isForADay(cert) {
			c.replaceFirst(ctx, kubelet, cert, log)
		}
		_ = cert.Run(ctx) // it ends with ctx, and has nothing to give back
	}()
	persist := func(ctx context.Context, name string, part func() error) { run.Persist(ctx, log, name, part) }
	go persist(ctx, "trust", func() error { return known.follow(ctx, kubelet, log, kubelet.Renew) })
	if onReady != nil {
		onReady()
	}
	return c.runAs(ctx, l, learned, func(ctx context.Context, c *agent) {
		p := place{
			NodeConfig: c.Node, dataDir: c.DataDir, client: &roleClient{kubelet, c.Node.Name}, serviceCIDRs: c.ServiceCIDRs, clusterCIDRs: c.ClusterCIDRs(), find: c.wayTo,
			issue:     nodestatus.Ask(func() client.Client { return kubelet }, certificatesv1.KubeletServingSignerName),
			clientCAs: known.Pool, log: log, servers: &servers{c.Server, speaks, known}, persist: persist, refused: refused,
		}
		persist(ctx, "node", func() error { return p.run(ctx) })
	})
}

// What an agent keeps of the certificates of others and of its own: whom it believes, and with what it speaks.
const (
	caFile     = "ca.pem"
	clientFile = "client.pem"
)

// agent is a node in a process of its own.
type agent struct{ run.AgentConfig }

// join is the certificate with which the node speaks: what it has, or a new one for its token, if joined says so.
func (c *agent) join(ctx context.Context, dir string, pool *x509.CertPool, log *slog.Logger) (cert *nodestatus.Certificate, joined bool, err error) {
	cert = &nodestatus.Certificate{
		File: filepath.Join(dir, clientFile), Log: log, Wanted: func() *x509.CertificateRequest { return nodestatus.ClientRequest(c.Node.Name) },
	}
	if err := cert.Load(); err != nil {
		return nil, false, err
	}
	if c.Login != nil && c.Login.NodeName() != "" {
		if err := cert.Adopt(c.Login.Certificate, c.Login.Key); err != nil {
			return nil, false, fmt.Errorf("the client certificate of the kubeconfig %s: %w", c.Login.File, err)
		}
	}
	if cert.Current() != nil {
		return cert, false, nil
	}
	as, hint, err := c.firstLogin(pool)
	if err != nil {
		return nil, false, err
	}
	as.Log = log
	first, err := remote.New(ctx, as)
	if err != nil {
		return nil, false, err
	}
	defer first.Close()
	cert.Issue = nodestatus.Ask(func() client.Client { return first }, certificatesv1.KubeAPIServerClientKubeletSignerName)
	log.InfoContext(ctx, "the node asks for its certificate; where nobody approves that by itself, see \"kubectl get certificatesigningrequests\" and approve it", "node", c.Node.Name)
	err = cert.Renew(ctx)
	if nodestatus.IsRefused(err) { // the cluster says why, and what to do
		return nil, false, fmt.Errorf("join the cluster at %s as node %s: %w", c.Server, c.Node.Name, err)
	}
	if err != nil {
		return nil, false, fmt.Errorf("join the cluster at %s: %w%s", c.Server, err, c.explainRefusal(err, hint))
	}
	return cert, true, nil
}

// explainRefusal returns what to say to people when the agent could not join; hint is for a server that does not accept the login.
func (c *agent) explainRefusal(err error, hint string) string {
	if wrong, is := errors.AsType[x509.HostnameError](err); is {
		names := slices.Clone(wrong.Certificate.DNSNames)
		for _, ip := range wrong.Certificate.IPAddresses {
			names = append(names, ip.String())
		}
		return fmt.Sprintf(" (the server's certificate does not name %s; join by one of these: %s, or start the server with --tls-san %s)", wrong.Host, strings.Join(names, ", "), wrong.Host)
	}
	if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
		return fmt.Sprintf(" (%s)", hint)
	}
	return ""
}

// firstLogin returns how the agent speaks to the server before it has a certificate of its own, and what to say to people when the
// server does not accept that.
func (c *agent) firstLogin(pool *x509.CertPool) (as remote.Config, hint string, err error) {
	as = remote.Config{URL: c.Server, Agent: "proa-agent", TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	if c.Login != nil {
		as.Token = c.Login.Token
		if c.Login.Pair != nil {
			as.TLS.Certificates = []tls.Certificate{*c.Login.Pair}
		}
		return as, fmt.Sprintf("the user of the kubeconfig %s must be allowed to create and watch certificatesigningrequests, as the ClusterRole system:node-bootstrapper allows", c.Login.File), nil
	}
	token, err := run.ParseToken(c.Token)
	if err != nil {
		return as, "", err
	}
	as.Token = func() (string, error) { return token.Bearer(), nil }
	return as, "has the token expired? \"proa token create\" makes a new one", nil
}

// isForADay says that a certificate is one of the short-lived that the server of proa gives for a token.
func isForADay(cert *nodestatus.Certificate) bool {
	pair := cert.Current()
	return pair != nil && pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore) <= 48*time.Hour
}

// replaceFirst replaces the certificate that a token gave, which is good for a day, as soon as the node is registered. Otherwise
// a machine that is switched off on its first day would have to join again.
func (c *agent) replaceFirst(ctx context.Context, kubelet client.Client, cert *nodestatus.Certificate, log *slog.Logger) {
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

// authority is whom the agent believes: the certificates that it has kept, or those of its kubeconfig, or the one that the server shows
// and the token names.
func (c *agent) authority(ctx context.Context, dir string) (*trust, error) {
	file := filepath.Join(dir, caFile)
	kept, err := readTrust(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var certs []*x509.Certificate
	if kept != nil {
		if certs = c.another(ctx, kept); certs == nil {
			return kept, nil
		}
	} else if certs, err = c.first(ctx); err != nil {
		return nil, err
	}
	// What another authority has signed is of no use, and the settings that were learned may be those of another cluster.
	if kept == nil || !slices.ContainsFunc(certs, func(x *x509.Certificate) bool { return kept.names(x.Equal) }) {
		for _, old := range []string{filepath.Join(dir, clientFile), settingsFile(c.DataDir)} {
			if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("remove what is left of another cluster: %w", err)
			}
		}
	}
	return newTrust(file, certs...)
}

// first returns the authorities that an agent believes which has kept none.
func (c *agent) first(ctx context.Context) ([]*x509.Certificate, error) {
	if c.Login != nil {
		return c.kubeconfigAuthorities()
	}
	token, err := run.ParseToken(c.Token)
	if err != nil {
		return nil, err
	}
	cert, err := c.shown(ctx, token)
	return []*x509.Certificate{cert}, err
}

// kubeconfigAuthorities returns those that the kubeconfig names.
func (c *agent) kubeconfigAuthorities() ([]*x509.Certificate, error) {
	certs, err := parseBundle(c.Login.CA)
	if err != nil {
		return nil, fmt.Errorf("the certificate-authority of the kubeconfig %s: %w", c.Login.File, err)
	}
	return certs, nil
}

// another returns authorities that take the place of those that the agent has kept: the cluster has got a new one, and the token or the
// kubeconfig names it. Otherwise it is nil, since an old token or kubeconfig says nothing against what is kept.
func (c *agent) another(ctx context.Context, kept *trust) []*x509.Certificate {
	if c.Login != nil {
		certs, err := c.kubeconfigAuthorities()
		if err != nil || c.vouched(ctx, kept.Pool()) {
			return nil
		}
		pool := x509.NewCertPool()
		for _, x := range certs {
			pool.AddCert(x)
		}
		if !c.vouched(ctx, pool) {
			return nil
		}
		return certs
	}
	token, err := run.ParseToken(c.Token)
	if err != nil || kept.names(token.Names) {
		return nil
	}
	cert, err := c.shown(ctx, token)
	if err != nil {
		return nil
	}
	return []*x509.Certificate{cert}
}

// vouched says that the server can be reached, and shows a certificate that one of these authorities has signed.
func (c *agent) vouched(ctx context.Context, by *x509.CertPool) bool {
	addr, err := hostPort(c.Server)
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

// shown is the certificate of the authority that the token names, if the server shows it, in its chain or in the ConfigMap
// kube-public/cluster-info. A server that cannot is not believed.
func (c *agent) shown(ctx context.Context, token run.Token) (*x509.Certificate, error) {
	u, err := url.Parse(c.Server)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not a URL such as https://192.0.2.7:6443", c.Server)
	}
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second}, Config: &tls.Config{
		InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, //nolint:gosec // G402: what it shows is compared with the token
	}}
	addr, err := hostPort(c.Server)
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

// wayTo is the address of this machine from which the server is reached: that is how others reach the node.
func (c *agent) wayTo() (netip.Addr, error) {
	addr, err := hostPort(c.Server)
	if err != nil {
		return netip.Addr{}, err
	}
	conn, err := net.Dial("udp", addr) // nothing is sent
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the way to the server: %w", err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}
