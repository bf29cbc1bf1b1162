// Package hook runs the lifecycle handlers of containers: what a container asks to be done after it was started and before
// it is stopped. It runs a handler once; when to run it, and what its failure means, is the business of the worker of the Pod.
package hook

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

	"proa.dev/node/event"
	"proa.dev/node/probe"
)

// maxBody is how much of an answer is read; what it says is of no interest.
const maxBody = 10 << 10

// Runner runs commands in containers.
type Runner interface {
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (out []byte, code int, err error)
}

// Hooks runs handlers.
type Hooks struct {
	runner Runner
	events event.Recorder
	// host is the address of Pods that use the node's network.
	host func() netip.Addr
	web  *http.Client
}

// New makes hooks that run commands by a runner and report to told.
func New(runner Runner, events event.Recorder, host func() netip.Addr) *Hooks {
	return &Hooks{runner: runner, events: events, host: host, web: &http.Client{CheckRedirect: probe.StayOnHost, Transport: &http.Transport{
		// A container that the node has made is spoken to at its own address: there is no name to check a certificate against.
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // see above
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		DisableKeepAlives:   true,
	}}}
}

// Run runs a handler of a running container. The error says in upstream's words what failed.
func (h *Hooks) Run(ctx context.Context, p *corev1.Pod, c *corev1.Container, id string, ips []netip.Addr, handler *corev1.LifecycleHandler) error {
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
		// A tcpSocket is valid for reasons of history, and has never been run.
		return fmt.Errorf("Cannot run handler: invalid handler: %v", handler)
	}
	return nil
}

// exec runs a command for as long as ctx lasts. Its output is bounded, as it ends up in a message.
func (h *Hooks) exec(ctx context.Context, id string, command []string) (string, error) {
	out, code, err := h.runner.ExecSync(ctx, id, command, 0)
	text := string(out[:min(len(out), maxBody)])
	if err == nil && code != 0 {
		err = fmt.Errorf("command '%s' exited with %d: %s", strings.Join(command, " "), code, text)
	}
	return text, err
}

func sleep(ctx context.Context, seconds int64) error {
	t := time.NewTimer(time.Duration(seconds) * time.Second)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return errors.New("container terminated before sleep hook finished")
	case <-t.C:
		return nil
	}
}

// get sends the request of a handler; any answer is good. A handler that says https where only http is spoken is asked again
// in plain text, without what would be for the server's eyes only.
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
	if !plain(err) {
		return err
	}
	again := req.Clone(ctx)
	again.URL.Scheme = "http"
	again.Header.Del("Authorization")
	if h.send(again) != nil {
		return err
	}
	h.events.Event(p, "", corev1.EventTypeWarning, "LifecycleHTTPFallback", "request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", req.URL.Host)
	return nil
}

func (h *Hooks) send(req *http.Request) error {
	res, err := h.web.Do(req) //nolint:gosec // where to is what a Pod says, as the API defines it
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxBody)) // what it says does not matter, nor that it stops
	return nil
}

// plain says that a server answered in plain text where TLS was spoken to it.
func plain(err error) bool {
	sent, ok := errors.AsType[*url.Error](err)
	return ok && strings.Contains(sent.Err.Error(), "server gave HTTP response to HTTPS client")
}
