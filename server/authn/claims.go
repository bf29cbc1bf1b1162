package authn

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
)

// LegacyIssuer is the issuer of the tokens in Secrets, which never expire.
const LegacyIssuer = "kubernetes/serviceaccount"

// leeway is the tolerated clock skew, for expiry as well as for deletions.
const leeway = jwt.DefaultLeeway

// privateClaims are the claims of tokens made by TokenRequest in addition to those of RFC 7519.
type privateClaims struct {
	Kubernetes kubernetesClaims `json:"kubernetes.io,omitempty"`
}

type kubernetesClaims struct {
	Namespace      string `json:"namespace,omitempty"`
	ServiceAccount ref    `json:"serviceaccount,omitempty"`
	Pod            *ref   `json:"pod,omitempty"`
	Secret         *ref   `json:"secret,omitempty"`
	Node           *ref   `json:"node,omitempty"`
	// The webhook bindings are an alpha feature upstream. They are read only to be rejected.
	ValidatingWebhook *ref             `json:"validatingwebhookconfiguration,omitempty"`
	MutatingWebhook   *ref             `json:"mutatingwebhookconfiguration,omitempty"`
	WarnAfter         *jwt.NumericDate `json:"warnafter,omitempty"`
}

type ref struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// legacyClaims are the claims of tokens in Secrets.
type legacyClaims struct {
	ServiceAccountName string `json:"kubernetes.io/serviceaccount/service-account.name"`
	ServiceAccountUID  string `json:"kubernetes.io/serviceaccount/service-account.uid"`
	SecretName         string `json:"kubernetes.io/serviceaccount/secret.name"`
	Namespace          string `json:"kubernetes.io/serviceaccount/namespace"`
}

// tokenRecord is a token of which only the signature and the issuer were verified.
type tokenRecord struct {
	until  time.Time // when it leaves the cache
	public jwt.Claims
	bound  kubernetesClaims
	legacy *legacyClaims // set for tokens of LegacyIssuer instead of bound
	// who is the identity of the bearer, provided that the token is valid.
	who user.Info
	// accepted is the intersection of the audiences of the token with those of the API server.
	audiences, accepted []string
}

// parseUnverified parses a signed token and returns it with its issuer, without verifying the signature. ok is false if the text
// is not a signed token with a header.
func parseUnverified(token string) (parsed *jwt.JSONWebToken, issuer string, ok bool) {
	parsed, err := jwt.ParseSigned(token, algorithms())
	if err != nil || len(parsed.Headers) == 0 {
		return nil, "", false
	}
	var unverified struct {
		Issuer string `json:"iss"`
	}
	err = parsed.UnsafeClaimsWithoutVerification(&unverified)
	return parsed, unverified.Issuer, err == nil
}

// verifySignature parses a token. It returns nil and no error for what is not a token of this server, which includes
// unsigned ones and those of other issuers.
func (a *Authenticator) verifySignature(k *keyring, token string, now time.Time) (*tokenRecord, error) {
	parsed, issuer, ok := parseUnverified(token)
	if !ok || !a.knowsIssuer(issuer) {
		return nil, nil
	}
	keys := k.byID(parsed.Headers[0].KeyID)
	if len(keys) == 0 {
		return nil, errors.New("invalid signature, no keys found")
	}
	var errs []error
	for i := range keys {
		rec, err := decodeClaims(parsed, keys[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		// The issuer was read before the signature was verified.
		if !a.knowsIssuer(rec.public.Issuer) {
			return nil, fmt.Errorf("token issuer %q is invalid", rec.public.Issuer)
		}
		a.fillIn(rec, now)
		return rec, nil
	}
	return nil, utilerrors.NewAggregate(errs)
}

func (a *Authenticator) knowsIssuer(issuer string) bool {
	return issuer == LegacyIssuer || slices.Contains(a.cfg.Issuers, issuer)
}

// decodeClaims verifies the signature and reads the claims. A key is used only with its own algorithm.
func decodeClaims(parsed *jwt.JSONWebToken, key jose.JSONWebKey) (*tokenRecord, error) {
	if parsed.Headers[0].Algorithm != key.Algorithm {
		return nil, jose.ErrCryptoFailure
	}
	rec, private, legacy := &tokenRecord{}, privateClaims{}, legacyClaims{}
	if err := parsed.Claims(key.Key, &rec.public, &private, &legacy); err != nil {
		return nil, err
	}
	if rec.public.Issuer == LegacyIssuer {
		rec.legacy = &legacy
	} else {
		rec.bound = private.Kubernetes
	}
	return rec, nil
}

// fillIn sets the fields that follow from the claims alone.
func (a *Authenticator) fillIn(rec *tokenRecord, now time.Time) {
	rec.until = now.Add(maxTokenAge)
	if exp := rec.public.Expiry; exp != nil && exp.Time().Add(leeway).Before(rec.until) {
		rec.until = exp.Time().Add(leeway)
	}
	rec.audiences = rec.public.Audience
	if len(rec.audiences) == 0 {
		// Tokens from before audiences existed are for the API server.
		rec.audiences = a.audiences
	}
	rec.accepted = intersect(rec.audiences, a.audiences)

	info := serviceaccount.ServiceAccountInfo{}
	if l := rec.legacy; l != nil {
		info.Namespace, info.Name, info.UID = l.Namespace, l.ServiceAccountName, l.ServiceAccountUID
	} else {
		b := &rec.bound
		info.Namespace, info.Name, info.UID = b.Namespace, b.ServiceAccount.Name, b.ServiceAccount.UID
		if b.Pod != nil {
			info.PodName, info.PodUID = b.Pod.Name, b.Pod.UID
		}
		if b.Node != nil {
			info.NodeName, info.NodeUID = b.Node.Name, b.Node.UID
		}
		if rec.public.ID != "" {
			info.CredentialID = "JTI=" + rec.public.ID
		}
	}
	rec.who = copyWithAuthenticatedGroup(info.UserInfo())
}

func tokenKey(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }
