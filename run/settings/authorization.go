package settings

import (
	"errors"
	"fmt"
	"os"
	"time"

	"proa.dev/run/webhookclient"
	"proa.dev/server/authz/authzconfig"
)

// Permission configures the authorizers.
type Permission struct {
	// Config is the path of an AuthorizationConfiguration; empty for none.
	Config string
	// Modes are the authorizers in their order; empty for Node and RBAC.
	Modes []string
	// Hook configures the webhook among the modes.
	Hook authzconfig.Step
}

func defaultPermission() Permission {
	return Permission{Hook: authzconfig.Step{Version: "v1beta1", AllowedTTL: 5 * time.Minute, DeniedTTL: 30 * time.Second}}
}

// permissionSettings returns the settings about authorization.
func permissionSettings() []Setting {
	return []Setting{
		{Name: "authorization-config", Help: "use the authorizers that the AuthorizationConfiguration in `FILE` lists; changes of the file are applied while the server runs", Set: setFile(func(c *Config) *string { return &c.Permission.Config })},
		{Name: "authorization-mode", Help: "use the authorizers `MODE,...` in this order, of Node, RBAC, Webhook, AlwaysAllow and AlwaysDeny (default Node,RBAC)", Many: true,
			Set: func(c *Config, vs []string) error { c.Permission.Modes = splitLists(vs); return nil }},
		{Name: "authorization-webhook-config-file", Help: "use the authorization webhook that the current context of the kubeconfig `FILE` names", Set: setFile(func(c *Config) *string { return &c.Permission.Hook.Kubeconfig })},
		{Name: "authorization-webhook-version", Help: "send SubjectAccessReviews of `VERSION` v1 or v1beta1 to the authorization webhook (default v1beta1)", Set: setOne(func(c *Config, v string) error {
			c.Permission.Hook.Version = v
			return checkVersion("authorization", v)
		})},
		{Name: "authorization-webhook-cache-authorized-ttl", Help: "cache for `DURATION` what the authorization webhook allows (default 5m)", Set: setOne(func(c *Config, v string) (err error) {
			c.Permission.Hook.AllowedTTL, err = parseDuration(v)
			return err
		})},
		{Name: "authorization-webhook-cache-unauthorized-ttl", Help: "cache for `DURATION` what the authorization webhook does not allow (default 30s)", Set: setOne(func(c *Config, v string) (err error) {
			c.Permission.Hook.DeniedTTL, err = parseDuration(v)
			return err
		})},
	}
}

// ReadAuthorizers returns the authorizers in their order, from the file or the flags.
func (c *Config) ReadAuthorizers() ([]authzconfig.Step, error) {
	p := &c.Permission
	switch {
	case p.Config != "" && (len(p.Modes) > 0 || p.Hook.Kubeconfig != ""):
		return nil, errors.New("--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined")
	case p.Config != "":
		text, err := os.ReadFile(p.Config)
		if err != nil {
			return nil, fmt.Errorf("read the authorization configuration: %w", err)
		}
		steps, err := authzconfig.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Config, err)
		}
		return steps, nil
	case len(p.Modes) == 0:
		return authzconfig.FromModes([]string{"Node", "RBAC"}, p.Hook)
	}
	return authzconfig.FromModes(p.Modes, p.Hook)
}

// checkPermission returns what is wrong with the settings about authorization.
func (c *Config) checkPermission() error {
	steps, err := c.ReadAuthorizers()
	if err != nil {
		return err
	}
	for _, s := range steps {
		if s.Type == authzconfig.Webhook {
			if _, err := webhookclient.Open(s.Kubeconfig, s.Timeout); err != nil {
				return fmt.Errorf("authorizer %s: %w", s.Name, err)
			}
		}
	}
	return nil
}
