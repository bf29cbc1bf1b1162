package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// httpProber probes over HTTP. It accepts any certificate: a probe checks availability, not identity. h2c speaks HTTP/2
// without TLS.
type httpProber struct{ plain, h2c http.RoundTripper }

func newHTTPProber() *httpProber {
	transport := func() *http.Transport {
		return &http.Transport{
			TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // G402: a probe checks availability, not identity
			DisableKeepAlives:   true,
			DisableCompression:  true,
			TLSHandshakeTimeout: 10 * time.Second,
			DialContext:         dialer().DialContext,
		}
	}
	plain, h2c := transport(), transport()
	plain.ForceAttemptHTTP2 = true
	h2c.Protocols = new(http.Protocols)
	h2c.Protocols.SetUnencryptedHTTP2(true)
	return &httpProber{plain: plain, h2c: h2c}
}

// dialer makes connections that leave no socket in TIME_WAIT for a minute: nodes probe often.
func dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 1})
		})
		return errors.Join(err, failed)
	}}
}

func (w *httpProber) get(ctx context.Context, get *corev1.HTTPGetAction, t target, timeout time.Duration) (outcome, error) {
	req, err := Request(ctx, get, t.container, t.ip, "probe")
	if err != nil {
		return outcome{result: unknown}, err
	}
	client := &http.Client{Timeout: timeout, Transport: w.plain, CheckRedirect: StayOnHost}
	if get.Protocol != nil && *get.Protocol == corev1.HTTPProtocolHTTP2 {
		client.Transport = w.h2c
	}
	res, err := client.Do(req)
	if err != nil {
		return outcome{failure, err.Error()}, nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxOutput))
	switch {
	case err != nil:
		return outcome{result: failure}, err
	case res.StatusCode >= 200 && res.StatusCode < 300:
		return outcome{success, string(body)}, nil
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return outcome{warning, "Probe terminated redirects, Response body: " + string(body)}, nil
	}
	// The body may contain what only the container should know, and many users read Events.
	return failed("HTTP probe failed with statuscode: %d", res.StatusCode), nil
}

// StayOnHost is a CheckRedirect that follows redirects to the same host only: a container must not make the node call
// other hosts.
func StayOnHost(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}

// connect checks whether a port accepts connections.
func connect(ctx context.Context, host string, port int, timeout time.Duration) outcome {
	d := dialer()
	d.Timeout = timeout
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return outcome{failure, err.Error()}
	}
	conn.Close()
	return outcome{result: success}
}
