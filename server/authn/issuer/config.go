package issuer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	api "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"proa.dev/server/celenv"
)

// Config holds the trusted issuers, and the rule for requests without credentials.
type Config struct {
	// Anonymous is nil when the file says nothing about it.
	Anonymous *api.AnonymousAuthConfig

	trusted []trusted
}

// Issuers returns the number of issuers.
func (c *Config) Issuers() int { return len(c.trusted) }

// trusted is an issuer with the compiled expressions of its rules.
type trusted struct {
	api.JWTAuthenticator
	rules      authenticationcel.CELMapper
	algorithms []string
}

// algorithms returns the signature algorithms that tokens may use. Those with a shared secret are not among them:
// whoever can verify such a signature can also make it.
func algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512"}
}

// Parse reads an AuthenticationConfiguration. own lists the issuers of this cluster, which it may not name.
func Parse(text []byte, own []string) (*Config, error) {
	if len(text) == 0 {
		return nil, errors.New("empty config data")
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	decoded, err := runtime.Decode(codecs.UniversalDecoder(), text)
	if err != nil {
		return nil, err
	}
	config, ok := decoded.(*api.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("expected AuthenticationConfiguration, got %T", decoded)
	}
	return compile(config, algorithms(), own)
}

// Flags are the values of upstream's --oidc-* flags for one issuer.
type Flags struct {
	URL, ClientID                 string
	CA                            []byte // of the issuer's server; nil for the system's trust store
	UsernameClaim, UsernamePrefix string
	GroupsClaim, GroupsPrefix     string
	Algorithms                    []string
	Required                      []string // claim=value
}

// FromFlags returns the configuration that the flags describe.
func FromFlags(f Flags, own []string) (*Config, error) {
	if f.URL == "" || f.ClientID == "" {
		return nil, errors.New("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set")
	}
	// The prefix keeps users of two issuers apart; an e-mail address is unique by itself.
	prefix := f.UsernamePrefix
	switch {
	case prefix == "-":
		prefix = ""
	case prefix == "" && f.UsernameClaim != "email":
		prefix = f.URL + "#"
	}
	jwt := api.JWTAuthenticator{
		Issuer:        api.Issuer{URL: f.URL, Audiences: []string{f.ClientID}, CertificateAuthority: string(f.CA)},
		ClaimMappings: api.ClaimMappings{Username: api.PrefixedClaimOrExpression{Claim: f.UsernameClaim, Prefix: &prefix}},
	}
	if f.GroupsClaim != "" {
		jwt.ClaimMappings.Groups = api.PrefixedClaimOrExpression{Claim: f.GroupsClaim, Prefix: &f.GroupsPrefix}
	}
	for _, r := range f.Required {
		claim, value, ok := strings.Cut(r, "=")
		if !ok {
			return nil, fmt.Errorf("oidc-required-claim: %q is not CLAIM=VALUE", r)
		}
		jwt.ClaimValidationRules = append(jwt.ClaimValidationRules, api.ClaimValidationRule{Claim: claim, RequiredValue: value})
	}
	allowed := f.Algorithms
	if len(allowed) == 0 {
		allowed = []string{"RS256"}
	}
	for _, a := range allowed {
		if !slices.Contains(algorithms(), a) {
			return nil, fmt.Errorf("oidc: unsupported signing alg: %q", a)
		}
	}
	return compile(&api.AuthenticationConfiguration{JWT: []api.JWTAuthenticator{jwt}}, allowed, own)
}

// compile validates a configuration as upstream does, and keeps the compiled expressions.
func compile(config *api.AuthenticationConfiguration, algorithms, own []string) (*Config, error) {
	compiler := authenticationcel.NewCompiler(celenv.Base())
	if err := validation.ValidateAuthenticationConfiguration(compiler, config, own).ToAggregate(); err != nil {
		return nil, err
	}
	out := &Config{Anonymous: config.Anonymous}
	for _, jwt := range config.JWT {
		if jwt.Issuer.EgressSelectorType != "" {
			return nil, fmt.Errorf("issuer %s: egressSelectorType is not supported: proa has no egress selectors", jwt.Issuer.URL)
		}
		rules, errs := validation.CompileAndValidateJWTAuthenticator(compiler, jwt, own)
		if err := errs.ToAggregate(); err != nil {
			return nil, err
		}
		out.trusted = append(out.trusted, trusted{jwt, rules, algorithms})
	}
	return out, nil
}
