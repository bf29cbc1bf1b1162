package run

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
)

const (
	// hookAnswer bounds what a webhook may say.
	hookAnswer = 4 << 20
	// A webhook that is in trouble is asked again: after hookPause, and after half as long again each time.
	hookTries = 5
	hookPause = 500 * time.Millisecond
)

// hook is a webhook: somebody who is asked by HTTP.
type hook struct {
	url            *url.URL
	client         *http.Client
	token          func() (string, error) // nil for none
	user, password string
}

// openHook reads the kubeconfig of a webhook.
func openHook(path string, timeout time.Duration) (*hook, error) {
	f, err := readKubeconfig(path)
	if err != nil {
		return nil, err
	}
	h, err := f.openHook(filepath.Dir(path), timeout)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

func (f *kubeconfigFile) openHook(dir string, timeout time.Duration) (*hook, error) {
	cluster, who, err := f.current()
	if err != nil {
		return nil, err
	}
	return cluster.openHook(dir, who, timeout)
}

func (c *kubeconfigCluster) openHook(dir string, u *kubeconfigUser, timeout time.Duration) (*hook, error) {
	where, err := url.Parse(c.Server)
	if err != nil || where.Host == "" || where.Scheme != "https" && where.Scheme != "http" {
		return nil, fmt.Errorf("%q is not the URL of a server", c.Server)
	}
	if u.Exec != nil {
		return nil, errors.New("the control plane starts no programs; give the webhook a certificate or a token instead of exec")
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName, InsecureSkipVerify: c.Insecure} //nolint:gosec // the file says so
	ca, err := given(c.CA, beside(dir, c.CAFile))
	if err != nil {
		return nil, err
	}
	if len(ca) > 0 {
		if trust.RootCAs = x509.NewCertPool(); !trust.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("the certificate-authority holds no certificate")
		}
	}
	cert, err := given(u.Cert, beside(dir, u.CertFile))
	if err != nil {
		return nil, err
	}
	key, err := given(u.Key, beside(dir, u.KeyFile))
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
	t.TLSClientConfig = trust
	if c.Proxy != "" {
		proxy, err := url.Parse(c.Proxy)
		if err != nil {
			return nil, fmt.Errorf("proxy-url: %w", err)
		}
		t.Proxy = http.ProxyURL(proxy)
	}
	h := &hook{url: where, client: &http.Client{Transport: t, Timeout: timeout, CheckRedirect: refuseRedirect}, user: u.Username, password: u.Password}
	switch {
	case u.TokenFile != "":
		h.token = func() (string, error) { // read anew each time: it may be replaced
			text, err := os.ReadFile(beside(dir, u.TokenFile))
			return strings.TrimSpace(string(text)), err
		}
	case u.Token != "":
		h.token = func() (string, error) { return u.Token, nil }
	}
	return h, nil
}

// post sends a body, again if that may help, and returns the answer.
func (h *hook) post(ctx context.Context, body []byte) ([]byte, error) {
	pause := hookPause
	for try := 1; ; try++ {
		answer, again, err := h.once(ctx, body)
		if err == nil || !again || try == hookTries || ctx.Err() != nil {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause + rand.N(pause/5)): //nolint:gosec // G404: a pause is no secret
		}
		pause += pause / 2
	}
}

// once sends a body, and says whether another try may go better.
func (h *hook) once(ctx context.Context, body []byte) (answer []byte, again bool, err error) {
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
			err = fmt.Errorf("ask the webhook at %s: %w", shown(h.url), e.Err)
		}
		return nil, errors.Is(err, syscall.ECONNRESET), err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		again = res.StatusCode == http.StatusInternalServerError || res.StatusCode == http.StatusGatewayTimeout ||
			res.StatusCode == http.StatusTooManyRequests || res.Header.Get("Retry-After") != ""
		return nil, again, refused("the webhook", h.url, res)
	}
	answer, err = io.ReadAll(io.LimitReader(res.Body, hookAnswer+1))
	if err != nil {
		return nil, errors.Is(err, syscall.ECONNRESET), err
	}
	if len(answer) > hookAnswer {
		return nil, false, fmt.Errorf("the webhook at %s answered more than %d bytes", shown(h.url), hookAnswer)
	}
	return answer, false, nil
}
