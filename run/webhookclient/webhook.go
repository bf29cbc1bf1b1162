// Package webhookclient sends requests to the services that the configuration of a server names: webhooks for
// authentication, authorization, audit events and the conversion of custom objects, and extenders of the scheduler.
package webhookclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"proa.dev/internal/wait"
	"proa.dev/run/credentials"
)

const (
	// maxAnswerBytes bounds the answer of a webhook.
	maxAnswerBytes = 4 << 20
	// Requests that failed are retried up to maxAttempts times in all, after firstPause and then after pauses that grow by half.
	maxAttempts = 5
	firstPause  = 500 * time.Millisecond
	// maxConnections bounds the connections to a webhook. Anybody can make the server send requests to some webhooks, as by tokens that
	// nobody knows; further requests wait, within their timeout.
	maxConnections = 128
)

// Client sends requests to a webhook.
type Client struct {
	url            *url.URL
	client         *http.Client
	token          func() (string, error) // nil for none
	user, password string
}

// Open returns the client for the webhook that the current context of a kubeconfig leads to.
func Open(path string, timeout time.Duration) (*Client, error) {
	f, err := credentials.ReadKubeconfig(path)
	if err != nil {
		return nil, err
	}
	cluster, who, err := f.Current()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	h, err := newClient(cluster, who, filepath.Dir(path), timeout)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

// newClient returns the client for a cluster of a kubeconfig. Paths in the kubeconfig are relative to dir.
func newClient(c *credentials.Cluster, u *credentials.User, dir string, timeout time.Duration) (*Client, error) {
	where, err := url.Parse(c.Server)
	if err != nil || where.Host == "" || where.Scheme != "https" && where.Scheme != "http" {
		return nil, fmt.Errorf("%q is not the URL of a server", c.Server)
	}
	if u.Exec != nil {
		return nil, errors.New("the control plane starts no programs; give the webhook a certificate or a token instead of exec")
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName,
		InsecureSkipVerify: c.Insecure} //nolint:gosec // the file says so
	ca, err := credentials.DataOrFile(c.CA, credentials.PathFrom(dir, c.CAFile))
	if err != nil {
		return nil, err
	}
	if len(ca) > 0 {
		if trust.RootCAs = x509.NewCertPool(); !trust.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("the certificate-authority holds no certificate")
		}
	}
	cert, err := credentials.DataOrFile(u.Cert, credentials.PathFrom(dir, u.CertFile))
	if err != nil {
		return nil, err
	}
	key, err := credentials.DataOrFile(u.Key, credentials.PathFrom(dir, u.KeyFile))
	if err != nil {
		return nil, err
	}
	if len(cert) > 0 {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("the client certificate: %w", err)
		}
		trust.Certificates = []tls.Certificate{pair}
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig, t.MaxConnsPerHost, t.MaxResponseHeaderBytes = trust, maxConnections, 64<<10
	if c.Proxy != "" {
		proxy, err := url.Parse(c.Proxy)
		if err != nil {
			return nil, fmt.Errorf("proxy-url: %w", err)
		}
		t.Proxy = http.ProxyURL(proxy)
	}
	h := &Client{url: where, client: &http.Client{Transport: t, Timeout: timeout, CheckRedirect: refuseRedirect}, user: u.Username,
		password: u.Password}
	switch {
	case u.TokenFile != "":
		h.token = func() (string, error) { // read each time, because it may be replaced
			text, err := os.ReadFile(credentials.PathFrom(dir, u.TokenFile))
			return strings.TrimSpace(string(text)), err
		}
	case u.Token != "":
		h.token = func() (string, error) { return u.Token, nil }
	}
	return h, nil
}

// Post sends a body and returns the answer. It retries with back-off if that may help. All attempts together have the timeout of the
// client.
func (h *Client) Post(ctx context.Context, body []byte) ([]byte, error) {
	ctx, stop := context.WithTimeout(ctx, h.client.Timeout)
	defer stop()
	pause := firstPause
	for try := 1; ; try++ {
		answer, again, err := h.Once(ctx, body)
		if err == nil || !again || try == maxAttempts || ctx.Err() != nil {
			return answer, err
		}
		if wait.Sleep(ctx, pause+rand.N(pause/5)) != nil { //nolint:gosec // G404: a pause is no secret
			return nil, err
		}
		pause += pause / 2
	}
}

// Once sends a body without retrying. again tells whether a retry may help.
func (h *Client) Once(ctx context.Context, body []byte) (answer []byte, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if h.token != nil {
		token, err := h.token()
		if err != nil {
			return nil, false, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	} else if h.user != "" {
		req.SetBasicAuth(h.user, h.password)
	}
	res, err := h.client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = fmt.Errorf("ask the webhook at %s: %w", redactedURL(h.url), e.Err)
		}
		return nil, errors.Is(err, syscall.ECONNRESET), err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		again = res.StatusCode == http.StatusInternalServerError || res.StatusCode == http.StatusGatewayTimeout ||
			res.StatusCode == http.StatusTooManyRequests || res.Header.Get("Retry-After") != ""
		return nil, again, answerError("the webhook", h.url, res)
	}
	answer, err = io.ReadAll(io.LimitReader(res.Body, maxAnswerBytes+1))
	if err != nil {
		return nil, errors.Is(err, syscall.ECONNRESET), err
	}
	if len(answer) > maxAnswerBytes {
		return nil, false, fmt.Errorf("the webhook at %s answered more than %d bytes", redactedURL(h.url), maxAnswerBytes)
	}
	return answer, false, nil
}
