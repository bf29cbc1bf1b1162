package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	api "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/server/authn"
	"proa.dev/server/authn/issuer"
)

// Identity is what can be said about who users are, besides what is in the cluster.
type Identity struct {
	// Config is the path of an AuthenticationConfiguration, TokenFile that of a list of tokens; empty for none.
	Config, TokenFile string
	// OIDC is the older way to trust one issuer of tokens, and OIDCAuthority the path of its certificates.
	OIDC          issuer.Flags
	OIDCAuthority string
	// Hook is the path of a kubeconfig for a token webhook, HookVersion that of its TokenReviews, and HookKeep how long its
	// answers are good.
	Hook, HookVersion string
	HookKeep          time.Duration
	// Anonymous lets requests without credentials in everywhere, or nowhere; nil lets them ask for health and version.
	Anonymous *bool
}

func defaultIdentity() Identity {
	return Identity{OIDC: issuer.Flags{UsernameClaim: "sub"}, HookVersion: "v1beta1", HookKeep: 2 * time.Minute}
}

// identitySettings are the settings about who users are.
func identitySettings() []Setting {
	text := func(field func(*Config) *string) func(*Config, []string) error {
		return one(func(c *Config, v string) error { *field(c) = v; return nil })
	}
	return []Setting{
		{Name: "authentication-config", Help: "trust the issuers of tokens that the AuthenticationConfiguration in `FILE` names; it is read again when it changes", Set: file(func(c *Config) *string { return &c.Identity.Config })},
		{Name: "oidc-issuer-url", Help: "trust tokens of the OpenID Connect provider at `URL`", Set: text(func(c *Config) *string { return &c.Identity.OIDC.URL })},
		{Name: "oidc-client-id", Help: "if they are meant for the client `ID`", Set: text(func(c *Config) *string { return &c.Identity.OIDC.ClientID })},
		{Name: "oidc-ca-file", Help: "trust the certificates in `FILE` to vouch for the provider", Set: file(func(c *Config) *string { return &c.Identity.OIDCAuthority })},
		{Name: "oidc-username-claim", Help: "take the user's name from the `CLAIM` (sub)", Set: text(func(c *Config) *string { return &c.Identity.OIDC.UsernameClaim })},
		{Name: "oidc-username-prefix", Help: "put `TEXT` before it; - for nothing, and the issuer's URL and # if nothing is said and it is no e-mail address", Set: text(func(c *Config) *string { return &c.Identity.OIDC.UsernamePrefix })},
		{Name: "oidc-groups-claim", Help: "take the user's groups from the `CLAIM`", Set: text(func(c *Config) *string { return &c.Identity.OIDC.GroupsClaim })},
		{Name: "oidc-groups-prefix", Help: "put `TEXT` before each of them", Set: text(func(c *Config) *string { return &c.Identity.OIDC.GroupsPrefix })},
		{Name: "oidc-signing-algs", Help: "take signatures by these algorithms: `NAME,...` (RS256)", Many: true,
			Set: func(c *Config, vs []string) error { c.Identity.OIDC.Algorithms = split(vs); return nil }},
		{Name: "oidc-required-claim", Help: "take only tokens with this `CLAIM=VALUE`", Many: true,
			Set: func(c *Config, vs []string) error { c.Identity.OIDC.Required = vs; return nil }},
		{Name: "token-auth-file", Help: "know the tokens in `FILE`: lines of token, user name, user UID and groups", Set: file(func(c *Config) *string { return &c.Identity.TokenFile })},
		{Name: "authentication-token-webhook-config-file", Help: "ask the webhook that the kubeconfig `FILE` leads to about tokens nobody here knows", Set: file(func(c *Config) *string { return &c.Identity.Hook })},
		{Name: "authentication-token-webhook-version", Help: "with TokenReviews of `VERSION` v1 or v1beta1 (v1beta1)", Set: one(func(c *Config, v string) error {
			c.Identity.HookVersion = v
			return checkVersion("authentication", v)
		})},
		{Name: "authentication-token-webhook-cache-ttl", Help: "and remember its answers for `DURATION` (2m)", Set: one(func(c *Config, v string) (err error) {
			c.Identity.HookKeep, err = parseDuration(v)
			return err
		})},
		{Name: "anonymous-auth", Help: "let requests without credentials in as system:anonymous: `BOOL`; without this setting they may ask for health and version only", Set: one(func(c *Config, v string) error {
			on, err := strconv.ParseBool(v)
			if err != nil {
				return fmt.Errorf("%q is neither true nor false", v)
			}
			c.Identity.Anonymous = &on
			return nil
		})},
	}
}

func checkVersion(what, v string) error {
	if v != "v1" && v != "v1beta1" {
		return fmt.Errorf("unsupported %s webhook version %q, supported versions are %q, %q", what, v, "v1", "v1beta1")
	}
	return nil
}

func parseDuration(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration such as 30s or 5m", v)
	}
	return d, nil
}

// readIssuers reads which issuers of tokens are trusted: from the file, or from the flags; nil for none.
func (c *Config) readIssuers() (*issuer.Config, error) {
	i, own := &c.Identity, []string{c.Issuer}
	flags := i.OIDC
	said := flags.URL+flags.ClientID+flags.UsernamePrefix+flags.GroupsClaim+flags.GroupsPrefix+i.OIDCAuthority != "" ||
		flags.UsernameClaim != defaultIdentity().OIDC.UsernameClaim && flags.UsernameClaim != "" || len(flags.Algorithms)+len(flags.Required) > 0
	switch {
	case i.Config != "" && said:
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
	case said:
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

// checkIdentity finds what is wrong with the settings about users before anything is started.
func (c *Config) checkIdentity() error {
	if _, err := c.readIssuers(); err != nil {
		return err
	}
	if _, err := c.readTokens(); err != nil {
		return err
	}
	if c.Identity.Hook != "" {
		if _, err := openHook(c.Identity.Hook, time.Minute); err != nil {
			return fmt.Errorf("authentication-token-webhook-config-file: %w", err)
		}
	}
	return nil
}

// readTokens reads the list of tokens; nil for none.
func (c *Config) readTokens() (authn.TokenFunc, error) {
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

// anonymous decides which requests may come without credentials.
func anonymous(said *bool, file *api.AnonymousAuthConfig) func(*http.Request) bool {
	everywhere := func(*http.Request) bool { return true }
	nowhere := func(*http.Request) bool { return false }
	switch {
	case file != nil && !file.Enabled, file == nil && said != nil && !*said:
		return nowhere
	case file != nil && len(file.Conditions) > 0:
		return func(r *http.Request) bool {
			return slices.ContainsFunc(file.Conditions, func(c api.AnonymousAuthCondition) bool {
				return c.Path == r.URL.Path
			})
		}
	case file != nil, said != nil:
		return everywhere
	}
	return authn.PublicPaths
}

// outside are the users that others know.
type outside struct {
	verifier  atomic.Pointer[issuer.Verifier] // nil for no issuers
	anonymous atomic.Pointer[func(*http.Request) bool]
}

// verify is a TokenFunc for the issuers of the moment.
func (o *outside) verify(ctx context.Context, token string, audiences []string) (user.Info, []string, bool, error) {
	v := o.verifier.Load()
	if v == nil {
		return nil, nil, false, nil
	}
	return v.Verify(ctx, token, audiences)
}

// trustIssuers takes over which issuers are trusted, and who may come without credentials.
func (s *Server) trustIssuers() error {
	c, err := s.readIssuers()
	if err != nil {
		return err
	}
	var file *api.AnonymousAuthConfig
	var v *issuer.Verifier
	if c != nil {
		file = c.Anonymous
		if v, err = issuer.New(c, s.log, nil); err != nil {
			return err
		}
	}
	let := anonymous(s.Identity.Anonymous, file)
	s.outside.anonymous.Store(&let)
	s.outside.verifier.Store(v)
	return nil
}

// tokens are the ways to know a token besides those of the cluster itself.
func (s *Server) tokens() (out []authn.TokenFunc, err error) {
	listed, err := s.readTokens()
	if err != nil {
		return nil, err
	}
	if listed != nil {
		out = append(out, listed)
	}
	if err := s.trustIssuers(); err != nil {
		return nil, err
	}
	out = append(out, s.outside.verify)
	if s.Identity.Hook != "" {
		h, err := openHook(s.Identity.Hook, time.Minute)
		if err != nil {
			return nil, fmt.Errorf("authentication-token-webhook-config-file: %w", err)
		}
		w := &authn.Webhook{Post: h.post, Version: s.Identity.HookVersion, Keep: s.Identity.HookKeep}
		out = append(out, w.Verify)
	}
	return out, nil
}
