// Package issuer authenticates users by tokens of other issuers: JSON web tokens of OpenID Connect providers. Which
// issuers are trusted, and how claims become a user, is an AuthenticationConfiguration, or the older flags for one
// issuer.
//
// The keys of an issuer are fetched when its first token arrives, and again when a token names a key that is not known.
// So the server starts without its issuers, and they may run in the cluster itself.
package issuer

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/apiserver/pkg/authentication/user"
)

// leeway is how long before its nbf time a token is accepted, because clocks differ.
const leeway = 5 * time.Minute

// Verifier verifies the tokens of the issuers of a configuration.
type Verifier struct {
	issuers []*source
	now     func() time.Time
}

// source is an issuer with its keys.
type source struct {
	trusted
	keys *keys
}

// New returns a verifier. dial returns the HTTP client for an issuer, given the certificate authority of its server;
// nil means the default client.
func New(c *Config, log *slog.Logger, dial func(authority string) (*http.Client, error)) (*Verifier, error) {
	if dial == nil {
		dial = newClient
	}
	v := &Verifier{now: time.Now}
	for _, t := range c.trusted {
		client, err := dial(t.Issuer.CertificateAuthority)
		if err != nil {
			return nil, fmt.Errorf("issuer %s: %w", t.Issuer.URL, err)
		}
		v.issuers = append(v.issuers, &source{t, newKeys(&t, client, log)})
	}
	return v, nil
}

// Verify returns the user of a token. A token of an unknown issuer is not an error. The audiences of the API server are
// not considered: whether the token is meant for this cluster is decided by the audiences of the issuer's
// configuration.
func (v *Verifier) Verify(ctx context.Context, token string, _ []string) (who user.Info, accepted []string, ok bool, err error) {
	name := issuerOf(token)
	for _, s := range v.issuers {
		if s.Issuer.URL != name || name == "" {
			continue
		}
		c, err := s.check(ctx, token, v.now())
		if err != nil {
			return nil, nil, false, fmt.Errorf("oidc: verify token: %w", err)
		}
		info, err := s.user(ctx, c)
		if err != nil {
			return nil, nil, false, err
		}
		return info, nil, true, nil
	}
	return nil, nil, false, nil
}

// issuerOf returns the iss claim of a token. Nothing has been verified at this point.
func issuerOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var c struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(payload, &c) != nil {
		return ""
	}
	if c.Issuer == "accounts.google.com" { // the form from before the standard
		return "https://accounts.google.com"
	}
	return c.Issuer
}

// claims holds the claims of a token, not decoded yet.
type claims map[string]json.RawMessage

// read decodes a claim.
func (c claims) read(name string, into any) error {
	raw, ok := c[name]
	if !ok {
		return errors.New("claim not present")
	}
	return json.Unmarshal(raw, into)
}

// check verifies the signature, the audience and the validity period of a token, and returns its claims.
func (s *source) check(ctx context.Context, token string, now time.Time) (claims, error) {
	allowed := make([]jose.SignatureAlgorithm, len(s.algorithms))
	for i, a := range s.algorithms {
		allowed[i] = jose.SignatureAlgorithm(a)
	}
	signed, err := jose.ParseSignedCompact(token, allowed)
	if err != nil {
		return nil, fmt.Errorf("oidc: malformed jwt: %w", err)
	}
	payload, err := s.keys.verify(ctx, signed)
	if err != nil {
		return nil, err
	}
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil {
		return nil, fmt.Errorf("oidc: failed to unmarshal claims: %w", err)
	}
	return c, s.checkAudienceAndTime(c, now)
}

// checkAudienceAndTime checks that a token is for this cluster and valid now.
func (s *source) checkAudienceAndTime(c claims, now time.Time) error {
	var audiences stringList
	if err := c.read("aud", &audiences); err != nil {
		return fmt.Errorf("oidc: aud: %w", err)
	}
	if !slices.ContainsFunc(audiences, func(a string) bool { return slices.Contains(s.Issuer.Audiences, a) }) {
		return fmt.Errorf("oidc: expected audience in %q got %q", s.Issuer.Audiences, []string(audiences))
	}
	var expires, notBefore float64
	if err := c.read("exp", &expires); err != nil {
		return fmt.Errorf("oidc: exp: %w", err)
	}
	if end := unixTime(expires); !now.Before(end) {
		return fmt.Errorf("oidc: token is expired (Token Expiry: %v)", end)
	}
	if _, has := c["nbf"]; has {
		if err := c.read("nbf", &notBefore); err != nil {
			return fmt.Errorf("oidc: nbf: %w", err)
		}
		if begin := unixTime(notBefore); now.Add(leeway).Before(begin) {
			return fmt.Errorf("oidc: current time %v before the nbf (not before) time: %v", now, begin)
		}
	}
	return nil
}

func unixTime(seconds float64) time.Time { return time.Unix(int64(seconds), 0) }

// stringList is a JSON list of strings, or a single string.
type stringList []string

// UnmarshalJSON accepts both forms.
func (m *stringList) UnmarshalJSON(b []byte) error {
	var list []string
	if json.Unmarshal(b, &list) == nil {
		*m = list
		return nil
	}
	var single string
	if err := json.Unmarshal(b, &single); err != nil {
		return err
	}
	*m = []string{single}
	return nil
}
