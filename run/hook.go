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

	"sigs.k8s.io/yaml"
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

// hookFile is the part of a kubeconfig that says how to reach a webhook.
type hookFile struct {
	Current  string `json:"current-context"`
	Contexts []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster string `json:"cluster"`
			User    string `json:"user"`
		} `json:"context"`
	} `json:"contexts"`
	Clusters []struct {
		Name    string      `json:"name"`
		Cluster hookCluster `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		Name string   `json:"name"`
		User hookUser `json:"user"`
	} `json:"users"`
}

type hookCluster struct {
	Server     string `json:"server"`
	CAFile     string `json:"certificate-authority"`
	CA         []byte `json:"certificate-authority-data"`
	Insecure   bool   `json:"insecure-skip-tls-verify"`
	ServerName string `json:"tls-server-name"`
	Proxy      string `json:"proxy-url"`
}

type hookUser struct {
	CertFile  string `json:"client-certificate"`
	Cert      []byte `json:"client-certificate-data"`
	KeyFile   string `json:"client-key"`
	Key       []byte `json:"client-key-data"`
	Token     string `json:"token"`
	TokenFile string `json:"tokenFile"`
	Username  string `json:"username"`
	Password  string `json:"password"`
	Exec      any    `json:"exec"`
}

// openHook reads the kubeconfig of a webhook.
func openHook(path string, timeout time.Duration) (*hook, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f hookFile
	if err := yaml.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	h, err := f.open(filepath.Dir(path), timeout)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

func (f *hookFile) open(dir string, timeout time.Duration) (*hook, error) {
	if f.Current == "" {
		return nil, errors.New("there is no current-context; name the context that leads to the webhook")
	}
	cluster, who, found := "", "", false
	for _, c := range f.Contexts {
		if c.Name == f.Current {
			cluster, who, found = c.Context.Cluster, c.Context.User, true
		}
	}
	if !found {
		return nil, fmt.Errorf("there is no context %q", f.Current)
	}
	for _, c := range f.Clusters {
		if c.Name != cluster {
			continue
		}
		for _, u := range f.Users {
			if u.Name == who {
				return c.Cluster.open(dir, &u.User, timeout)
			}
		}
		if who != "" {
			return nil, fmt.Errorf("there is no user %q", who)
		}
		return c.Cluster.open(dir, &hookUser{}, timeout)
	}
	return nil, fmt.Errorf("there is no cluster %q", cluster)
}

func (c *hookCluster) open(dir string, u *hookUser, timeout time.Duration) (*hook, error) {
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

// beside is a path as a file in a folder means it.
func beside(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
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
