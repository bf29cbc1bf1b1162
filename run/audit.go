package run

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/server/audit"
)

// AuditHook is what can be said about the webhook of the audit log.
type AuditHook struct {
	// Config is the path of the kubeconfig that leads to it; empty for none.
	Config string
	audit.Hook
}

// auditSettings are the settings of that webhook.
func auditSettings() []Setting {
	count := func(field func(*Config) *int) func(*Config, []string) error {
		return one(func(c *Config, v string) error {
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 || n > 1_000_000 {
				return fmt.Errorf("%q is not a number between 1 and 1000000", v)
			}
			*field(c) = n
			return nil
		})
	}
	return []Setting{
		{Name: "audit-webhook-config-file", Help: "send audit events to the webhook that the kubeconfig `FILE` leads to", Set: file(func(c *Config) *string { return &c.AuditHook.Config })},
		{Name: "audit-webhook-mode", Help: "in `MODE` batch, many at a time behind the requests, blocking, one by one while they wait, or blocking-strict, which refuses requests that cannot be told (batch)", Set: one(func(c *Config, v string) error {
			if v != "batch" && v != "blocking" && v != "blocking-strict" {
				return fmt.Errorf("%q is neither batch, blocking nor blocking-strict", v)
			}
			c.AuditHook.Blocking, c.AuditHook.Strict = v == "blocking", v == "blocking-strict"
			return nil
		})},
		{Name: "audit-webhook-batch-buffer-size", Help: "let `N` events wait (10000)", Set: count(func(c *Config) *int { return &c.AuditHook.Buffer })},
		{Name: "audit-webhook-batch-max-size", Help: "send `N` events at a time at most (400)", Set: count(func(c *Config) *int { return &c.AuditHook.Most })},
		{Name: "audit-webhook-batch-max-wait", Help: "send them after `DURATION` at the latest (30s)", Set: one(func(c *Config, v string) (err error) {
			c.AuditHook.Wait, err = parseDuration(v)
			return err
		})},
		{Name: "audit-webhook-initial-backoff", Help: "try again `DURATION` after the first failure (10s)", Set: one(func(c *Config, v string) (err error) {
			c.AuditHook.Retry, err = parseDuration(v)
			return err
		})},
	}
}

// checkAudit finds a webhook that cannot be reached because of what is written in its file.
func (c *Config) checkAudit() error {
	if c.AuditHook.Config == "" {
		return nil
	}
	if _, err := openHook(c.AuditHook.Config, auditTimeout); err != nil {
		return fmt.Errorf("audit-webhook-config-file: %w", err)
	}
	return nil
}

const auditTimeout = 30 * time.Second

// openAudit opens the audit log, if there shall be one.
func (s *Server) openAudit(counts prometheus.Registerer) error {
	if s.Audit == "" && s.AuditHook.Config == "" {
		return nil
	}
	c := audit.Config{Path: s.Audit, Log: s.log}
	var err error
	if s.AuditPolicy != "" {
		if c.Policy, err = os.ReadFile(s.AuditPolicy); err != nil {
			return fmt.Errorf("read the audit policy: %w", err)
		}
	}
	if s.AuditHook.Config != "" {
		h, err := openHook(s.AuditHook.Config, auditTimeout)
		if err != nil {
			return fmt.Errorf("audit-webhook-config-file: %w", err)
		}
		c.Hook = new(s.AuditHook.Hook)
		c.Hook.Post = func(body []byte) error {
			ctx, stop := context.WithTimeout(context.Background(), auditTimeout) // events belong to no request any more
			defer stop()
			_, _, err := h.once(ctx, body) // the log tries again by itself
			return err
		}
	}
	if s.audit, err = audit.Open(c); err != nil {
		return err
	}
	for _, m := range s.audit.Collectors() {
		if err := counts.Register(m); err != nil {
			return err
		}
	}
	return nil
}
