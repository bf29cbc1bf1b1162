// Package authn is hop 2 of 12: it turns a request into the identity that made it.
//
// Vocabulary: a credential is what a request presents (a client certificate, a bearer token, the headers
// of a trusted front proxy); an identity is a user.Info. The credentials are tried in the order front
// proxy, certificate, bearer token, WebSocket token; the first valid one decides. A request whose
// credentials all fail is rejected, even where a request without credentials would be anonymous.
//
// The package owns the trust anchors, the keys of service-account tokens (it issues what it verifies)
// and two caches: of certificates whose chain was verified and of tokens whose signature was verified.
// Neither caches a decision about objects: whether a service account, or the Pod a token is bound to, still
// exists is looked up for every request, so a deletion takes effect at once. Identities handed out are
// shared between requests and must not be changed.
package authn

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
)

// ErrNoCredentials is the error for a request without credentials where anonymous requests are not allowed.
var ErrNoCredentials = errors.New("no credentials provided")

// errInvalidToken is the error for a token that no verifier recognises. It does not say what is wrong with the token.
var errInvalidToken = errors.New("invalid bearer token")

// Lookup reads the objects that a token refers to. A missing object is an API error for which apierrors.IsNotFound
// holds. An implementation over a cache should ask the store before it reports that something is missing, because a
// token may arrive before the event of the object that it was made for.
type Lookup interface {
	ServiceAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
	Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	Node(ctx context.Context, name string) (*corev1.Node, error)
}

// TokenFunc verifies bearer tokens of a further kind (OIDC, webhook). It returns ok false and no error for a token that
// is not of its kind. Audiences are those that the token was accepted for; nil means that the verifier knows no
// audiences and those of the API server are assumed.
type TokenFunc func(ctx context.Context, token string, audiences []string) (who user.Info, accepted []string, ok bool, err error)

// Config holds the settings of an Authenticator. What is nil is switched off.
type Config struct {
	// ClientCAs verify client certificates, FrontProxyCAs those of front proxies.
	ClientCAs, FrontProxyCAs *x509.CertPool
	// FrontProxyNames are the common names front proxies may have; empty means "front-proxy-client".
	FrontProxyNames []string

	// Issuers are the names of this cluster in service-account tokens. The first signs, all are accepted.
	Issuers []string
	// Audiences are the names of the API server in tokens; empty means the first issuer.
	Audiences []string
	// SigningKey signs tokens. VerifyKeys verify them, in addition to SigningKey.
	SigningKey crypto.Signer
	VerifyKeys []crypto.PublicKey
	// JWKSURI is where the keys are published; empty means the first issuer followed by JWKSPath.
	JWKSURI string
	// MaxExpiration shortens requested tokens; zero means no limit.
	MaxExpiration time.Duration
	// NoExtension switches off the year that is added to tokens the kubelet asks for with
	// WarnExpirationSeconds.
	NoExtension bool
	// Lookup is required for service-account and bootstrap tokens.
	Lookup Lookup
	// Tokens are tried after the built-in kinds of tokens.
	Tokens []TokenFunc

	// Anonymous decides which requests may come without credentials; nil means none.
	Anonymous func(*http.Request) bool

	// Certificate is called with the remaining validity of the client certificate of each request that has one; nil for
	// no call.
	Certificate func(left time.Duration)

	// Annotate receives audit annotations, Warn warnings for the client. Both may be nil.
	Annotate func(ctx context.Context, key, value string)
	Warn     func(ctx context.Context, text string)
	// LegacyUsed is called when a token out of a Secret is used for the first time on a day (UTC, 2006-01-02), so that
	// the Secret can be labelled LastUsedLabel. May be nil.
	LegacyUsed func(ctx context.Context, secret *corev1.Secret, day string)

	// Now replaces the clock; nil means time.Now.
	Now func() time.Time
}

// Authenticator identifies requests. It is safe for concurrent use.
type Authenticator struct {
	cfg         Config
	audiences   []string
	now         func() time.Time
	anonymous   user.Info
	otherTokens []TokenFunc // verifiers of the tokens that are not of service accounts
	trust       atomic.Pointer[trust]
	keys        atomic.Pointer[keyring]
}

// New returns an Authenticator after it has checked the configuration.
func New(cfg Config) (*Authenticator, error) {
	a := &Authenticator{cfg: cfg, audiences: cfg.Audiences, now: cfg.Now, anonymous: &user.DefaultInfo{
		Name: user.Anonymous, Groups: []string{user.AllUnauthenticated},
	}}
	if a.now == nil {
		a.now = time.Now
	}
	if len(a.cfg.FrontProxyNames) == 0 {
		a.cfg.FrontProxyNames = []string{"front-proxy-client"}
	}
	if len(a.audiences) == 0 && len(cfg.Issuers) > 0 {
		a.audiences = cfg.Issuers[:1]
	}
	if slices.Contains(cfg.Issuers, "") {
		return nil, errors.New("authn: an issuer of service-account tokens is empty")
	}
	if cfg.Lookup != nil {
		a.otherTokens = append(a.otherTokens, a.bootstrapToken)
	}
	a.otherTokens = append(a.otherTokens, cfg.Tokens...)
	a.SetTrust(cfg.ClientCAs, cfg.FrontProxyCAs)
	if err := a.SetKeys(cfg.SigningKey, cfg.VerifyKeys...); err != nil {
		return nil, err
	}
	return a, nil
}

// SetTrust replaces the certificate authorities of client certificates and drops the cache of certificates that were
// verified with the former ones.
func (a *Authenticator) SetTrust(clientCAs, frontProxyCAs *x509.CertPool) {
	a.trust.Store(&trust{clientCAs: clientCAs, proxyCAs: frontProxyCAs, proxyNames: a.cfg.FrontProxyNames})
}

// SetKeys replaces the keys of service-account tokens and drops the cache of tokens that were verified with the former
// ones. Without any key no service-account token is accepted.
func (a *Authenticator) SetKeys(signing crypto.Signer, verify ...crypto.PublicKey) error {
	if signing == nil && len(verify) == 0 {
		a.keys.Store(&keyring{})
		return nil
	}
	if len(a.cfg.Issuers) == 0 || a.cfg.Lookup == nil {
		return errors.New("authn: service-account tokens need an issuer and a lookup")
	}
	k, err := newKeyring(signing, verify)
	if err != nil {
		return fmt.Errorf("authn: %w", err)
	}
	if err := k.publish(a.cfg.Issuers[0], a.cfg.JWKSURI); err != nil {
		return fmt.Errorf("authn: %w", err)
	}
	a.keys.Store(k)
	return nil
}

// Request authenticates the client of r. On success the credentials are removed from the headers of r, so that no later
// hop can use or leak them; forged front-proxy headers are removed with them. Any error means 401; its text is for the
// log, not for the client.
func (a *Authenticator) Request(r *http.Request) (user.Info, error) {
	who, err := a.identify(r)
	if err != nil {
		return nil, err
	}
	delete(r.Header, "Authorization")
	stripFrontProxy(r.Header)
	return who, nil
}

func (a *Authenticator) identify(r *http.Request) (user.Info, error) {
	var errs []error
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		who, err := a.certificate(r)
		if err == nil {
			return who, nil
		}
		errs = append(errs, err)
	}
	token, spaced := bearerToken(r.Header)
	if token != "" {
		who, err := a.token(r.Context(), token)
		if err == nil {
			return who, nil
		}
		errs = append(errs, err)
	} else if spaced {
		a.warn(r.Context(), "the provided Authorization header contains extra space before the bearer token, and is ignored")
	}
	if isWebSocket(r.Header) {
		token, protocols, err := webSocketToken(r.Header)
		var who user.Info
		if err == nil && token != "" {
			who, err = a.token(r.Context(), token)
		}
		if err != nil {
			errs = append(errs, err)
		} else if who != nil {
			r.Header.Set(protocolHeader, protocols)
			return who, nil
		}
	}
	if len(errs) > 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	if a.cfg.Anonymous != nil && a.cfg.Anonymous(r) {
		return a.anonymous, nil
	}
	return nil, ErrNoCredentials
}

// PublicPaths is the usual Config.Anonymous: it allows health, version and the static files of the dashboard, and nothing else.
func PublicPaths(r *http.Request) bool {
	switch r.URL.Path {
	case "/healthz", "/livez", "/readyz", "/version", "/version/":
		return true
	}
	isRead := r.Method == http.MethodGet || r.Method == http.MethodHead
	return isRead && (r.URL.Path == "/dashboard" || strings.HasPrefix(r.URL.Path, "/dashboard/"))
}

// withAuthenticatedGroup adds the group system:authenticated.
func withAuthenticatedGroup(u *user.DefaultInfo) *user.DefaultInfo {
	if u.Name == user.Anonymous || slices.Contains(u.Groups, user.AllAuthenticated) || slices.Contains(u.Groups, user.AllUnauthenticated) {
		return u
	}
	// Clip, because the groups may be those of a certificate that others read.
	u.Groups = append(slices.Clip(u.Groups), user.AllAuthenticated)
	return u
}

func (a *Authenticator) annotate(ctx context.Context, key, value string) {
	if a.cfg.Annotate != nil {
		a.cfg.Annotate(ctx, key, value)
	}
}

func (a *Authenticator) warn(ctx context.Context, text string) {
	if a.cfg.Warn != nil {
		a.cfg.Warn(ctx, text)
	}
}
