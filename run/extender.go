package run

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	configv1 "k8s.io/kube-scheduler/config/v1"
)

// extenderTimeout and extenderAnswer bound what an extender of the scheduler may take, and say.
const (
	extenderTimeout = 5 * time.Second
	extenderAnswer  = 64 << 20
)

// askExtender posts a question of the scheduler to an extender.
func askExtender(ctx context.Context, e *configv1.Extender, url string, body []byte) ([]byte, error) {
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
	// An extender is asked seldom: a connection for each question needs no care.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, CheckRedirect: refuseRedirect}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, refused("the extender", req.URL, res)
	}
	answer, err := io.ReadAll(io.LimitReader(res.Body, extenderAnswer+1))
	if err == nil && len(answer) > extenderAnswer {
		err = fmt.Errorf("the extender at %s answered more than %d bytes", url, extenderAnswer)
	}
	return answer, err
}

// extenderTLS is how an extender is trusted, and shown who asks. The files are read anew for each question: they may be
// replaced.
func extenderTLS(e *configv1.Extender) (*tls.Config, error) {
	t := e.TLSConfig
	if t == nil {
		return &tls.Config{MinVersion: tls.VersionTLS12}, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.Insecure} //nolint:gosec // the file says so
	ca, err := given(t.CAData, t.CAFile)
	if err != nil {
		return nil, err
	}
	if len(ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("the CA of the extender %s holds no certificate", e.URLPrefix)
		}
	}
	cert, err := given(t.CertData, t.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := given(t.KeyData, t.KeyFile)
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

// given is data, or what is in a file.
func given(data []byte, file string) ([]byte, error) {
	if len(data) > 0 || file == "" {
		return data, nil
	}
	return os.ReadFile(file)
}
