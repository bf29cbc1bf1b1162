package run

import (
	"context"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/run/settings"
	"proa.dev/run/webhookclient"
	"proa.dev/server/audit"
)

// openAudit opens the audit log, if one is configured.
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
		h, err := webhookclient.Open(s.AuditHook.Config, settings.AuditTimeout)
		if err != nil {
			return fmt.Errorf("audit-webhook-config-file: %w", err)
		}
		c.Hook = new(s.AuditHook.Hook)
		c.Hook.Post = func(body []byte) error {
			ctx, stop := context.WithTimeout(context.Background(), settings.AuditTimeout) // events belong to no request any more
			defer stop()
			_, _, err := h.Once(ctx, body) // the log tries again by itself
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
