// Package agentjoin lets the agent of a node join a cluster whose API server is in another process: it finds the
// certificate authority that the agent trusts, gets the client certificate of the node, and reads the settings of the
// cluster.
package agentjoin

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/client"
	"proa.dev/client/remote"
	"proa.dev/internal/wait"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/nodestatus"
	"proa.dev/run/credentials"
	"proa.dev/run/settings"
)

// Agent is a node in a process of its own.
type Agent struct{ settings.AgentConfig }

// Join returns the client certificate of the node: the one it has, or a new one for its token or kubeconfig, in which
// case joined is true.
func (c *Agent) Join(ctx context.Context, dir string, pool *x509.CertPool, log *slog.Logger) (cert *nodestatus.Certificate, joined bool,
	err error) {
	cert = &nodestatus.Certificate{
		File: filepath.Join(dir, ClientFile), Log: log,
		Wanted: func() *x509.CertificateRequest { return nodestatus.ClientRequest(c.Node.Name) },
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
	if err := c.joinForFirstTime(ctx, cert, pool, log); err != nil {
		return nil, false, c.explainExpired(cert.Expired(), err)
	}
	return cert, true, nil
}

// explainExpired returns the error of an agent that could not join, with the advice for one whose certificate has expired: it
// was away for so long that it joins again, and the name of its node is taken by itself.
func (c *Agent) explainExpired(expired time.Time, err error) error {
	if expired.IsZero() {
		return err
	}
	return fmt.Errorf("the certificate of node %s expired at %s, before the agent could renew it, so that the node must join again with new credentials, which these are not: %w. "+
		"On the server, \"proa token create --node %s\" makes a token for it; the Pods and data of the node stay",
		c.Node.Name, expired.UTC().Format(time.RFC3339), err, c.Node.Name)
}

// joinForFirstTime gets a certificate for the token or kubeconfig of the agent.
func (c *Agent) joinForFirstTime(ctx context.Context, cert *nodestatus.Certificate, pool *x509.CertPool, log *slog.Logger) error {
	as, hint, err := c.firstLogin(pool)
	if err != nil {
		return err
	}
	as.Log = log
	first, err := remote.New(ctx, as)
	if err != nil {
		return err
	}
	defer first.Close()
	cert.Issue = nodestatus.RequestCertificates(func() client.Client { return first }, certificatesv1.KubeAPIServerClientKubeletSignerName)
	log.InfoContext(ctx, "the node requests its certificate; if it is not approved automatically, approve it with \"kubectl certificate approve\", see \"kubectl get certificatesigningrequests\"", "node", c.Node.Name)
	err = cert.Renew(ctx)
	if nodestatus.IsRefused(err) { // the error of the cluster has the reason and the advice
		return fmt.Errorf("join the cluster at %s as node %s: %w", c.Server, c.Node.Name, err)
	}
	if err != nil {
		return fmt.Errorf("join the cluster at %s: %w%s", c.Server, err, c.explainRefusal(err, hint))
	}
	return nil
}

// explainRefusal returns the advice for a user whose agent could not join; hint is for a server that does not accept
// the credentials.
func (c *Agent) explainRefusal(err error, hint string) string {
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

// firstLogin returns how the agent logs in before it has a certificate of its own, and the advice for a user if the
// server refuses that.
func (c *Agent) firstLogin(pool *x509.CertPool) (as remote.Config, hint string, err error) {
	as = remote.Config{URL: c.Server, Agent: "proa-agent", TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	if c.Login != nil {
		as.Token = c.Login.Token
		if c.Login.Pair != nil {
			as.TLS.Certificates = []tls.Certificate{*c.Login.Pair}
		}
		return as, fmt.Sprintf("the user of the kubeconfig %s must be allowed to create and watch certificatesigningrequests, as the ClusterRole system:node-bootstrapper allows", c.Login.File), nil
	}
	token, err := credentials.ParseJoinToken(c.Token)
	if err != nil {
		return as, "", err
	}
	as.Token = func() (string, error) { return token.Bearer(), nil }
	return as, "has the token expired? \"proa token create\" makes a new one", nil
}

// IsShortLived tells whether a certificate is one that the server of proa gives for a token, which is valid for a day.
func IsShortLived(cert *nodestatus.Certificate) bool {
	pair := cert.Current()
	return pair != nil && pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore) <= 48*time.Hour
}

// ReplaceFirstCertificate replaces the certificate that a token gave, which is valid for a day, as soon as the node is
// registered. Otherwise a machine that is switched off on its first day would have to join again.
func (c *Agent) ReplaceFirstCertificate(ctx context.Context, kubelet client.Client, cert *nodestatus.Certificate, log *slog.Logger) {
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
	backoff := wait.Backoff{First: time.Second, Max: time.Minute}
	for {
		err := renew()
		if err == nil || ctx.Err() != nil {
			return
		}
		log.ErrorContext(ctx, "the first certificate of the node cannot be replaced yet", "err", err)
		if backoff.Sleep(ctx) != nil {
			return
		}
	}
}

// RunWithSettings runs the node with the settings of the cluster, and restarts it when they change. It returns when ctx
// ends, or when the cluster contradicts the flags of the agent.
func (c *Agent) RunWithSettings(ctx context.Context, l *SettingsReader, learned map[string]string,
	run func(context.Context, *Agent)) error {
	for {
		config, err := c.WithClusterSettings(learned)
		if err != nil {
			return err
		}
		running, stop := context.WithCancel(ctx)
		changed := make(chan map[string]string, 1)
		go func() {
			defer stop()
			changed <- l.waitForChange(running, learned)
		}()
		run(running, &Agent{config})
		stop()
		next := <-changed
		if ctx.Err() != nil {
			return nil
		}
		if next == nil {
			continue
		}
		l.Log.WarnContext(ctx, "the settings of the cluster have changed; the node is restarted with them", "before", learned, "now", next)
		if learned = next; l.store(next) != nil {
			l.Log.WarnContext(ctx, "the settings of the cluster cannot be stored", "file", l.File)
		}
	}
}

// Files in the agent's pki folder.
const (
	// CAFile has the certificate authorities that the agent trusts, and ClientFile its client certificate and key.
	CAFile     = "ca.pem"
	ClientFile = "client.pem"
)
