package authn

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// The paths of the documents from which relying parties outside of the cluster learn how to verify service-account
// tokens.
const (
	OpenIDConfigPath = "/.well-known/openid-configuration"
	JWKSPath         = "/openid/v1/jwks"
)

// keysMaxAge is how long, in seconds, relying parties may cache the documents.
const keysMaxAge = 3600

// openIDConfig is the part of the OIDC provider metadata that verifiers of tokens need.
type openIDConfig struct {
	Issuer        string   `json:"issuer"`
	JWKSURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	SigningAlgs   []string `json:"id_token_signing_alg_values_supported"`
}

// canPublish reports whether an issuer can have discovery documents, for which it must be an https URL without a query and a
// fragment. Tokens can have any issuer.
func canPublish(issuer string) bool {
	u, err := url.Parse(issuer)
	return err == nil && u.Scheme == "https" && u.RawQuery == "" && u.Fragment == ""
}

// publish builds the two documents.
func (k *keyring) publish(issuer, jwksURI string) error {
	if !canPublish(issuer) {
		return nil
	}
	if jwksURI == "" {
		jwksURI = strings.TrimSuffix(issuer, "/") + JWKSPath
	}
	if u, err := url.Parse(jwksURI); err != nil || u.Scheme != "https" {
		return fmt.Errorf("the JWKS URI requires https scheme, got: %s", jwksURI)
	}
	var err error
	if k.jwks, err = json.Marshal(jose.JSONWebKeySet{Keys: k.public}); err != nil {
		return fmt.Errorf("encode the JWKS: %w", err)
	}
	var algs []string
	for _, key := range k.public {
		algs = append(algs, key.Algorithm)
	}
	slices.Sort(algs)
	k.config, err = json.Marshal(openIDConfig{
		Issuer:        issuer,
		JWKSURI:       jwksURI,
		ResponseTypes: []string{"id_token"},
		SubjectTypes:  []string{"public"},
		SigningAlgs:   slices.Compact(algs),
	})
	if err != nil {
		return fmt.Errorf("encode the OIDC configuration: %w", err)
	}
	return nil
}

// ServeOpenIDConfig serves OpenIDConfigPath.
func (a *Authenticator) ServeOpenIDConfig(w http.ResponseWriter, r *http.Request) {
	serveDocument(w, r, a.keys.Load().config, "application/json")
}

// ServeJWKS serves JWKSPath.
func (a *Authenticator) ServeJWKS(w http.ResponseWriter, r *http.Request) {
	serveDocument(w, r, a.keys.Load().jwks, "application/jwk-set+json")
}

// OpenIDConfig returns the document itself, nil when there is none.
func (a *Authenticator) OpenIDConfig() []byte { return a.keys.Load().config }

// JWKS returns the document itself, nil when there is none.
func (a *Authenticator) JWKS() []byte { return a.keys.Load().jwks }

func serveDocument(w http.ResponseWriter, r *http.Request, doc []byte, contentType string) {
	if doc == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", keysMaxAge))
	// It fails only when the client has disconnected.
	_, _ = w.Write(doc)
}
