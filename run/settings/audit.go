package settings

import (
	"fmt"
	"strconv"
	"time"

	"proa.dev/run/webhookclient"
	"proa.dev/server/audit"
)

// AuditHook configures the webhook of the audit log.
type AuditHook struct {
	// Config is the path of the kubeconfig of the webhook; empty for none.
	Config string
	audit.Hook
}

// auditSettings returns the settings of the audit webhook.
func auditSettings() []Setting {
	count := func(field func(*Config) *int) func(*Config, []string) error {
		return setOne(func(c *Config, v string) error {
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 || n > 1_000_000 {
				return fmt.Errorf("%q is not a number between 1 and 1000000", v)
			}
			*field(c) = n
			return nil
		})
	}
	return []Setting{
		{Name: "audit-webhook-config-file", Help: "send audit events to the webhook that the current context of the kubeconfig `FILE` names", Set: setFile(func(c *Config) *string { return &c.AuditHook.Config })},
		{Name: "audit-webhook-mode", Help: "send audit events in `MODE` batch, many at a time after the requests; blocking, one by one while the request waits; or blocking-strict, which also fails requests whose event cannot be sent (default batch)", Set: setOne(func(c *Config, v string) error {
			if v != "batch" && v != "blocking" && v != "blocking-strict" {
				return fmt.Errorf("%q is neither batch, blocking nor blocking-strict", v)
			}
			c.AuditHook.Blocking, c.AuditHook.Strict = v == "blocking", v == "blocking-strict"
			return nil
		})},
		{Name: "audit-webhook-batch-buffer-size", Help: "buffer at most `N` audit events for the webhook (default 10000)",
			Set: count(func(c *Config) *int { return &c.AuditHook.Buffer })},
		{Name: "audit-webhook-batch-max-size", Help: "send at most `N` audit events at a time (default 400)",
			Set: count(func(c *Config) *int { return &c.AuditHook.MaxBatch })},
		{Name: "audit-webhook-batch-max-wait", Help: "send audit events to the webhook after `DURATION` at the latest (default 30s)", Set: setOne(func(c *Config, v string) (err error) {
			c.AuditHook.MaxWait, err = parseDuration(v)
			return err
		})},
		{Name: "audit-webhook-initial-backoff", Help: "retry `DURATION` after the first failure of the audit webhook (default 10s)", Set: setOne(func(c *Config, v string) (err error) {
			c.AuditHook.Retry, err = parseDuration(v)
			return err
		})},
	}
}

// checkAudit returns what is wrong with the kubeconfig of the audit webhook.
func (c *Config) checkAudit() error {
	if c.AuditHook.Config == "" {
		return nil
	}
	if _, err := webhookclient.Open(c.AuditHook.Config, AuditTimeout); err != nil {
		return fmt.Errorf("audit-webhook-config-file: %w", err)
	}
	return nil
}

// AuditTimeout is how long the audit webhook may take to answer.
const AuditTimeout = 30 * time.Second
