package webhookclient

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"time"

	configv1 "k8s.io/kube-scheduler/config/v1"

	"proa.dev/run/credentials"
)

// Limits of a scheduler extender's answer.
const (
	extenderTimeout  = 5 * time.Second
	maxExtenderBytes = 64 << 20
)

// AskExtender sends a request of the scheduler to an extender and returns its answer.
func AskExtender(ctx context.Context, e *configv1.Extender, url string, body []byte) ([]byte, error) {
	config, err := extenderTLS(e)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, cmp.Or(e.HTTPTimeout.Duration, extenderTimeout))
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	// Requests are rare, so a connection for each is good enough.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, CheckRedirect: refuseRedirect}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, answerError("the extender", req.URL, res)
	}
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxExtenderBytes+1))
	if err == nil && len(answer) > maxExtenderBytes {
		err = fmt.Errorf("the extender at %s answered more than %d bytes", url, maxExtenderBytes)
	}
	return answer, err
}

// extenderTLS returns the TLS configuration for an extender. The files are read for each request, because they may be
// replaced.
func extenderTLS(e *configv1.Extender) (*tls.Config, error) {
	t := e.TLSConfig
	if t == nil {
		return &tls.Config{MinVersion: tls.VersionTLS12}, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName,
		InsecureSkipVerify: t.Insecure} //nolint:gosec // the file says so
	ca, err := credentials.DataOrFile(t.CAData, t.CAFile)
	if err != nil {
		return nil, err
	}
	if len(ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("the CA of the extender %s holds no certificate", e.URLPrefix)
		}
	}
	cert, err := credentials.DataOrFile(t.CertData, t.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := credentials.DataOrFile(t.KeyData, t.KeyFile)
	if err != nil {
		return nil, err
	}
	if len(cert) > 0 {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("the certificate for the extender %s: %w", e.URLPrefix, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
