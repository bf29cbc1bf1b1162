package settings

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"proa.dev/run/webhookclient"
	"proa.dev/server/authn"
	"proa.dev/server/authn/issuer"
)

// Identity configures users that are not part of the cluster.
type Identity struct {
	// Config is the path of an AuthenticationConfiguration, and TokenFile that of a file of static tokens; empty for
	// none.
	Config, TokenFile string
	// OIDC configures one OpenID Connect issuer by flags, and OIDCAuthority is the path of its certificate authorities.
	OIDC          issuer.Flags
	OIDCAuthority string
	// Hook is the path of the kubeconfig of a token webhook, HookVersion the version of its TokenReviews, and HookKeep
	// how long its answers are cached.
	Hook, HookVersion string
	HookKeep          time.Duration
	// Anonymous accepts all requests without credentials, or none; nil accepts those for health, version and the dashboard.
	Anonymous *bool
}

func defaultIdentity() Identity {
	return Identity{OIDC: issuer.Flags{UsernameClaim: "sub"}, HookVersion: "v1beta1", HookKeep: 2 * time.Minute}
}

// identitySettings returns the settings about authentication.
func identitySettings() []Setting {
	text := func(field func(*Config) *string) func(*Config, []string) error {
		return setOne(func(c *Config, v string) error { *field(c) = v; return nil })
	}
	return []Setting{
		{Name: "authentication-config", Help: "accept tokens of the issuers that the AuthenticationConfiguration in `FILE` names; changes of the file are applied while the server runs", Set: setFile(func(c *Config) *string { return &c.Identity.Config })},
		{Name: "oidc-issuer-url", Help: "accept tokens of the OpenID Connect provider at `URL`",
			Set: text(func(c *Config) *string { return &c.Identity.OIDC.URL })},
		{Name: "oidc-client-id", Help: "accept tokens of the OpenID Connect provider that are issued for the client `ID`", Set: text(func(c *Config) *string { return &c.Identity.OIDC.ClientID })},
		{Name: "oidc-ca-file", Help: "trust the certificate authorities in `FILE` when connecting to the OpenID Connect provider", Set: setFile(func(c *Config) *string { return &c.Identity.OIDCAuthority })},
		{Name: "oidc-username-claim", Help: "read the user name from the `CLAIM` of the token (default sub)",
			Set: text(func(c *Config) *string { return &c.Identity.OIDC.UsernameClaim })},
		{Name: "oidc-username-prefix", Help: "put `TEXT` before the user name; - means no prefix (default the issuer's URL and #, unless the claim is email)", Set: text(func(c *Config) *string { return &c.Identity.OIDC.UsernamePrefix })},
		{Name: "oidc-groups-claim", Help: "read the groups of the user from the `CLAIM` of the token",
			Set: text(func(c *Config) *string { return &c.Identity.OIDC.GroupsClaim })},
		{Name: "oidc-groups-prefix", Help: "put `TEXT` before the name of each group",
			Set: text(func(c *Config) *string { return &c.Identity.OIDC.GroupsPrefix })},
		{Name: "oidc-signing-algs", Help: "accept signatures by the algorithms `NAME,...` (default RS256)", Many: true,
			Set: func(c *Config, vs []string) error { c.Identity.OIDC.Algorithms = splitLists(vs); return nil }},
		{Name: "oidc-required-claim", Help: "accept only tokens with this `CLAIM=VALUE`", Many: true,
			Set: func(c *Config, vs []string) error { c.Identity.OIDC.Required = vs; return nil }},
		{Name: "token-auth-file", Help: "accept the static tokens in `FILE`, a CSV file with token, user name, user UID and groups", Set: setFile(func(c *Config) *string { return &c.Identity.TokenFile })},
		{Name: "authentication-token-webhook-config-file", Help: "verify tokens that nothing else recognises by the webhook that the current context of the kubeconfig `FILE` names", Set: setFile(func(c *Config) *string { return &c.Identity.Hook })},
		{Name: "authentication-token-webhook-version", Help: "send TokenReviews of `VERSION` v1 or v1beta1 to the token webhook (default v1beta1)", Set: setOne(func(c *Config, v string) error {
			c.Identity.HookVersion = v
			return checkVersion("authentication", v)
		})},
		{Name: "authentication-token-webhook-cache-ttl", Help: "cache answers of the token webhook for `DURATION` (default 2m)",
			Set: setOne(func(c *Config, v string) (err error) {
				c.Identity.HookKeep, err = parseDuration(v)
				return err
			})},
		{Name: "anonymous-auth", Help: "`BOOL`: accept requests without credentials as user system:anonymous; without this setting they may read health, version and the files of the dashboard only", Set: setOne(func(c *Config, v string) error {
			on, err := strconv.ParseBool(v)
			if err != nil {
				return fmt.Errorf("%q is neither true nor false", v)
			}
			c.Identity.Anonymous = &on
			return nil
		})},
	}
}

// ReadIssuers returns which issuers of tokens are trusted, from the file or the flags; nil for none.
func (c *Config) ReadIssuers() (*issuer.Config, error) {
	i, own := &c.Identity, []string{c.Issuer}
	flags := i.OIDC
	given := flags.URL+flags.ClientID+flags.UsernamePrefix+flags.GroupsClaim+flags.GroupsPrefix+i.OIDCAuthority != "" ||
		flags.UsernameClaim != defaultIdentity().OIDC.UsernameClaim && flags.UsernameClaim != "" ||
		len(flags.Algorithms)+len(flags.Required) > 0
	switch {
	case i.Config != "" && given:
		return nil, errors.New("authentication-config file and oidc-* flags are mutually exclusive")
	case i.Config != "":
		text, err := os.ReadFile(i.Config)
		if err != nil {
			return nil, fmt.Errorf("read the authentication configuration: %w", err)
		}
		out, err := issuer.Parse(text, own)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", i.Config, err)
		}
		if out.Anonymous != nil && i.Anonymous != nil {
			return nil, fmt.Errorf("%s configures anonymous, and anonymous-auth is given; say one of them", i.Config)
		}
		return out, nil
	case given:
		if i.OIDCAuthority != "" {
			var err error
			if flags.CA, err = os.ReadFile(i.OIDCAuthority); err != nil {
				return nil, fmt.Errorf("read oidc-ca-file: %w", err)
			}
		}
		return issuer.FromFlags(flags, own)
	}
	return nil, nil
}

// checkIdentity returns what is wrong with the settings about authentication.
func (c *Config) checkIdentity() error {
	if _, err := c.ReadIssuers(); err != nil {
		return err
	}
	if _, err := c.ReadTokens(); err != nil {
		return err
	}
	if c.Identity.Hook != "" {
		if _, err := webhookclient.Open(c.Identity.Hook, time.Minute); err != nil {
			return fmt.Errorf("authentication-token-webhook-config-file: %w", err)
		}
	}
	return nil
}

// ReadTokens reads the file of static tokens; nil without one.
func (c *Config) ReadTokens() (authn.TokenFunc, error) {
	if c.Identity.TokenFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.Identity.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("read the tokens: %w", err)
	}
	out, err := authn.TokenFile(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("token file %s: %w", c.Identity.TokenFile, err)
	}
	return out, nil
}
