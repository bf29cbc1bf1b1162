package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/server/authz"
	"proa.dev/server/authz/order"
)

// Permission is what can be said about who decides what users may do.
type Permission struct {
	// Config is the path of an AuthorizationConfiguration; empty for none.
	Config string
	// Modes are the authorizers in their order; empty for Node and RBAC.
	Modes []string
	// Hook says how the webhook among the modes is asked.
	Hook order.Step
}

func defaultPermission() Permission {
	return Permission{Hook: order.Step{Version: "v1beta1", KeepAllowed: 5 * time.Minute, KeepOthers: 30 * time.Second}}
}

// permissionSettings are the settings about what users may do.
func permissionSettings() []Setting {
	return []Setting{
		{Name: "authorization-config", Help: "let the authorizers decide that the AuthorizationConfiguration in `FILE` lists; it is read again when it changes", Set: file(func(c *Config) *string { return &c.Permission.Config })},
		{Name: "authorization-mode", Help: "let these decide, in their order: `MODE,...` of Node, RBAC, Webhook, AlwaysAllow and AlwaysDeny (Node,RBAC)", Many: true,
			Set: func(c *Config, vs []string) error { c.Permission.Modes = split(vs); return nil }},
		{Name: "authorization-webhook-config-file", Help: "ask the webhook that the kubeconfig `FILE` leads to", Set: file(func(c *Config) *string { return &c.Permission.Hook.Kubeconfig })},
		{Name: "authorization-webhook-version", Help: "with SubjectAccessReviews of `VERSION` v1 or v1beta1 (v1beta1)", Set: one(func(c *Config, v string) error {
			c.Permission.Hook.Version = v
			return checkVersion("authorization", v)
		})},
		{Name: "authorization-webhook-cache-authorized-ttl", Help: "and remember for `DURATION` what it allows (5m)", Set: one(func(c *Config, v string) (err error) {
			c.Permission.Hook.KeepAllowed, err = parseDuration(v)
			return err
		})},
		{Name: "authorization-webhook-cache-unauthorized-ttl", Help: "and for `DURATION` what it does not (30s)", Set: one(func(c *Config, v string) (err error) {
			c.Permission.Hook.KeepOthers, err = parseDuration(v)
			return err
		})},
	}
}

// readAuthorizers reads who decides, in which order.
func (c *Config) readAuthorizers() ([]order.Step, error) {
	p := &c.Permission
	switch {
	case p.Config != "" && (len(p.Modes) > 0 || p.Hook.Kubeconfig != ""):
		return nil, errors.New("--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined")
	case p.Config != "":
		text, err := os.ReadFile(p.Config)
		if err != nil {
			return nil, fmt.Errorf("read the authorization configuration: %w", err)
		}
		steps, err := order.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Config, err)
		}
		return steps, nil
	case len(p.Modes) == 0:
		return order.FromModes([]string{"Node", "RBAC"}, p.Hook)
	}
	return order.FromModes(p.Modes, p.Hook)
}

// checkPermission finds what is wrong with the settings before anything is started.
func (c *Config) checkPermission() error {
	steps, err := c.readAuthorizers()
	if err != nil {
		return err
	}
	for _, s := range steps {
		if s.Type == order.Webhook {
			if _, err := openHook(s.Kubeconfig, s.Timeout); err != nil {
				return fmt.Errorf("authorizer %s: %w", s.Name, err)
			}
		}
	}
	return nil
}

// deciders are the authorizers of the server. Others may take their place while it runs.
type deciders struct {
	node  *authz.Node
	rbac  *authz.RBAC
	chain atomic.Pointer[authz.Chain]
}

// Authorize asks those of the moment.
func (d *deciders) Authorize(ctx context.Context, a authz.Attributes) (authz.Decision, string, error) {
	return d.chain.Load().Authorize(ctx, a)
}

// Review lists what a user may do.
func (d *deciders) Review(u user.Info, namespace string) authorizationv1.SubjectRulesReviewStatus {
	return d.chain.Load().Review(u, namespace)
}

// set takes over a list of authorizers. Members of system:masters are above them all.
func (d *deciders) set(steps []order.Step) error {
	chain := authz.New(d.node, d.rbac)[:1]
	for _, s := range steps {
		var next authz.Authorizer
		switch s.Type {
		case "Node":
			next = d.node
		case "RBAC":
			next = d.rbac
		case "AlwaysAllow":
			next = authz.Func(func(context.Context, authz.Attributes) (authz.Decision, string, error) { return authz.Allow, "", nil })
		case "AlwaysDeny":
			next = authz.Func(func(context.Context, authz.Attributes) (authz.Decision, string, error) {
				return authz.NoOpinion, "Everything is forbidden.", nil
			})
		case order.Webhook:
			h, err := openHook(s.Kubeconfig, s.Timeout)
			if err != nil {
				return fmt.Errorf("authorizer %s: %w", s.Name, err)
			}
			w := &authz.Webhook{Post: h.post, Version: s.Version, Match: s.Match, KeepAllowed: s.KeepAllowed, KeepOthers: s.KeepOthers}
			if s.Deny {
				w.Failed = authz.Deny
			}
			next = w
		}
		chain = append(chain, authz.Named{Name: s.Name, Authorizer: next})
	}
	d.chain.Store(&chain)
	return nil
}
