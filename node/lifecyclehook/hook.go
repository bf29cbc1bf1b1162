// Package lifecyclehook runs the lifecycle handlers of containers: postStart and preStop. It runs a handler once; when
// to run it, and what its failure means, is decided by package pod.
package lifecyclehook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/internal/wait"
	"proa.dev/node/event"
	"proa.dev/node/probe"
)

// maxBody is how much of a response is read; its contents are ignored.
const maxBody = 10 << 10

// Hooks runs lifecycle handlers.
type Hooks struct {
	runner probe.Runner
	events event.Recorder
	// host is the address of Pods that use the node's network.
	host func() netip.Addr
	http *http.Client
}

// New makes a Hooks. host returns the address of Pods that use the node's network.
func New(runner probe.Runner, events event.Recorder, host func() netip.Addr) *Hooks {
	return &Hooks{runner: runner, events: events, host: host,
		http: &http.Client{CheckRedirect: probe.StayOnHost, Transport: &http.Transport{
			// A container is addressed by its IP address: there is no name to check a certificate against.
			TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // G402: there is no name to verify
			TLSHandshakeTimeout: 10 * time.Second,
			ForceAttemptHTTP2:   true,
			DisableKeepAlives:   true,
		}}}
}

// Run runs a handler of a running container. The error has the text of upstream.
func (h *Hooks) Run(ctx context.Context, p *corev1.Pod, c *corev1.Container, id string, ips []netip.Addr,
	handler *corev1.LifecycleHandler) error {
	in := fmt.Sprintf("for Container %q in Pod \"%s_%s(%s)\" failed", c.Name, p.Name, p.Namespace, p.UID)
	switch {
	case handler.Exec != nil:
		if out, err := h.exec(ctx, id, handler.Exec.Command); err != nil {
			return fmt.Errorf("Exec lifecycle hook (%v) %s - error: %w, message: %q", handler.Exec.Command, in, err, out)
		}
	case handler.HTTPGet != nil:
		if err := h.get(ctx, p, c, ips, handler.HTTPGet); err != nil {
			return fmt.Errorf("HTTP lifecycle hook (%s) %s - error: %w", handler.HTTPGet.Path, in, err)
		}
	case handler.Sleep != nil:
		if err := sleep(ctx, handler.Sleep.Seconds); err != nil {
			return fmt.Errorf("Sleep lifecycle hook (%d) %s - error: %w", handler.Sleep.Seconds, in, err)
		}
	default:
		// A tcpSocket handler is valid for historical reasons, and has never been run.
		return fmt.Errorf("Cannot run handler: invalid handler: %v", handler)
	}
	return nil
}

// exec runs a command until ctx ends. Its output is limited, because it becomes part of a message.
func (h *Hooks) exec(ctx context.Context, id string, command []string) (string, error) {
	out, code, err := h.runner.ExecSync(ctx, id, command, 0)
	text := string(out[:min(len(out), maxBody)])
	if err == nil && code != 0 {
		err = fmt.Errorf("command '%s' exited with %d: %s", strings.Join(command, " "), code, text)
	}
	return text, err
}

func sleep(ctx context.Context, seconds int64) error {
	if wait.Sleep(ctx, time.Duration(seconds)*time.Second) != nil {
		return errors.New("container terminated before sleep hook finished")
	}
	return nil
}

// get sends the request of a handler; any response is a success. If a handler says https but the server speaks only
// http, the request is repeated over http without credentials.
func (h *Hooks) get(ctx context.Context, p *corev1.Pod, c *corev1.Container, ips []netip.Addr, get *corev1.HTTPGetAction) error {
	var ip string
	switch {
	case get.Host != "":
	case len(ips) > 0:
		ip = ips[0].String()
	case p.Spec.HostNetwork && h.host != nil:
		ip = h.host().String()
	default:
		return errors.New("failed to find networking container: the Pod has no address")
	}
	req, err := probe.Request(ctx, get, c, ip, "lifecycle")
	if err != nil {
		return err
	}
	err = h.send(req)
	if !isHTTPToTLS(err) {
		return err
	}
	again := req.Clone(ctx)
	again.URL.Scheme = "http"
	again.Header.Del("Authorization")
	if h.send(again) != nil {
		return err
	}
	h.events.Event(event.Pod(p), corev1.EventTypeWarning, "LifecycleHTTPFallback", "request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", req.URL.Host)
	return nil
}

func (h *Hooks) send(req *http.Request) error {
	res, err := h.http.Do(req) //nolint:gosec // G704: the API defines that the Pod chooses the URL
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxBody)) // the body and its errors are ignored
	return nil
}

// isHTTPToTLS reports whether a server answered in HTTP to a TLS handshake.
func isHTTPToTLS(err error) bool {
	sent, ok := errors.AsType[*url.Error](err)
	return ok && strings.Contains(sent.Err.Error(), "server gave HTTP response to HTTPS client")
}
