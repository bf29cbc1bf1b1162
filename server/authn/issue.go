package authn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

const (
	// DefaultExpirationSeconds is the lifetime of a token when the request names none.
	DefaultExpirationSeconds = 60 * 60
	// WarnExpirationSeconds is the unusual lifetime by which the tokens that are mounted into every Pod are recognised.
	// They are in fact valid for a year and are only reported as stale after this time, for the sake of programs that
	// read their token only once.
	WarnExpirationSeconds = 60*60 + 7
	// ExtendedExpirationSeconds is that year.
	ExtendedExpirationSeconds = 365 * 24 * 60 * 60
)

// IssueRequest describes the token to issue. The token is bound to at most one of Pod, Secret and Node; a Node beside a
// Pod is the node that the Pod runs on.
type IssueRequest struct {
	ServiceAccount *corev1.ServiceAccount
	Pod            *corev1.Pod
	Secret         *corev1.Secret
	Node           *corev1.Node
	// Audiences of the token; none means the API server.
	Audiences []string
	// ExpirationSeconds is the lifetime of the token; zero means DefaultExpirationSeconds.
	ExpirationSeconds int64
}

// Issued is a new token.
type Issued struct {
	Token string
	// Audiences and ExpirationSeconds are those that were granted, and Expires follows from them. A mounted token is
	// valid for longer.
	Audiences         []string
	ExpirationSeconds int64
	Expires           time.Time
	// CredentialID identifies the token in audit events.
	CredentialID string
	// Warning is for the client, when the token is not as requested.
	Warning string
}

// Issue returns a new token for a service account.
func (a *Authenticator) Issue(_ context.Context, r IssueRequest) (*Issued, error) {
	k, now := a.keys.Load(), a.now()
	if k.signer == nil {
		return nil, errors.New("issue token: there is no key to sign with")
	}
	if r.Secret != nil && (r.Pod != nil || r.Node != nil) {
		return nil, errors.New("issue token: it can be bound to one object only")
	}
	out := &Issued{Audiences: r.Audiences, ExpirationSeconds: r.ExpirationSeconds}
	if len(out.Audiences) == 0 {
		out.Audiences = a.audiences
	}
	if out.ExpirationSeconds == 0 {
		out.ExpirationSeconds = DefaultExpirationSeconds
	}
	if limit := int64(a.cfg.MaxExpiration / time.Second); limit > 0 && out.ExpirationSeconds > limit {
		out.Warning = fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", out.ExpirationSeconds, limit)
		out.ExpirationSeconds = limit
	}
	out.Expires = now.Add(time.Duration(out.ExpirationSeconds) * time.Second)

	public, private := a.claims(r, out, now)
	token, err := sign(k.signer, private, public)
	if err != nil {
		return nil, fmt.Errorf("failed to generate token: %w", err)
	}
	out.Token, out.CredentialID = token, "JTI="+public.ID
	return out, nil
}

// claims returns the claims of the token.
func (a *Authenticator) claims(r IssueRequest, granted *Issued, now time.Time) (*jwt.Claims, *privateClaims) {
	sa, life := r.ServiceAccount, granted.ExpirationSeconds
	private := &privateClaims{Kubernetes: kubernetesClaims{
		Namespace:      sa.Namespace,
		ServiceAccount: ref{Name: sa.Name, UID: string(sa.UID)},
	}}
	if r.Pod != nil {
		private.Kubernetes.Pod = &ref{Name: r.Pod.Name, UID: string(r.Pod.UID)}
	}
	if r.Secret != nil {
		private.Kubernetes.Secret = &ref{Name: r.Secret.Name, UID: string(r.Secret.UID)}
	}
	if r.Node != nil {
		private.Kubernetes.Node = &ref{Name: r.Node.Name, UID: string(r.Node.UID)}
	}
	if !a.cfg.NoExtension && r.Pod != nil && life == WarnExpirationSeconds && a.isOnlyForServer(granted.Audiences) {
		private.Kubernetes.WarnAfter = jwt.NewNumericDate(now.Add(time.Duration(life) * time.Second))
		life = ExtendedExpirationSeconds
	}
	return &jwt.Claims{
		Issuer:    a.cfg.Issuers[0],
		Subject:   serviceaccount.MakeUsername(sa.Namespace, sa.Name),
		Audience:  granted.Audiences,
		IssuedAt:  jwt.NewNumericDate(now),
		NotBefore: jwt.NewNumericDate(now),
		Expiry:    jwt.NewNumericDate(now.Add(time.Duration(life) * time.Second)),
		ID:        uuid.NewString(),
	}, private
}

// isOnlyForServer reports whether all audiences are those of the API server.
func (a *Authenticator) isOnlyForServer(audiences []string) bool {
	for _, aud := range audiences {
		if !slices.Contains(a.audiences, aud) {
			return false
		}
	}
	return true
}

// IssueLegacy returns a token without expiry for a Secret of type kubernetes.io/service-account-token.
func (a *Authenticator) IssueLegacy(sa *corev1.ServiceAccount, secretName string) (string, error) {
	k := a.keys.Load()
	if k.signer == nil {
		return "", errors.New("issue token: there is no key to sign with")
	}
	return sign(k.signer, &legacyClaims{
		Namespace:          sa.Namespace,
		ServiceAccountName: sa.Name,
		ServiceAccountUID:  string(sa.UID),
		SecretName:         secretName,
	}, &jwt.Claims{Issuer: LegacyIssuer, Subject: serviceaccount.MakeUsername(sa.Namespace, sa.Name)})
}

func sign(signer jose.Signer, private any, public *jwt.Claims) (string, error) {
	// A single audience stays a list, as clients of these tokens expect it, while the library would write a plain
	// string.
	list := struct {
		Audience []string `json:"aud,omitempty"`
	}{public.Audience}
	return jwt.Signed(signer).Claims(private).Claims(public).Claims(list).Serialize()
}
