package authn

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"

	"proa.dev/server/expirycache"
)

// keyring holds the keys of service-account tokens, the documents that publish them, and the cache of tokens that were
// verified with them: new keys start with an empty cache.
type keyring struct {
	signer jose.Signer
	public []jose.JSONWebKey // in the order in which they are tried and published
	tokens expirycache.Cache[[sha256.Size]byte, *tokenRecord]

	jwks   []byte
	config []byte // nil when the issuer is not an https URL, as OIDC requires
}

// algorithms returns the signature algorithms that are accepted in tokens. The list is closed because a token must
// never choose how it is verified.
func algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.ES256, jose.RS256, jose.ES384, jose.ES512}
}

func newKeyring(signing crypto.Signer, verify []crypto.PublicKey) (*keyring, error) {
	k := &keyring{}
	k.tokens.Limit = maxTokens
	if signing != nil {
		public, err := newJWK(signing.Public())
		if err != nil {
			return nil, err
		}
		k.public = append(k.public, public)
		private := public
		private.Key = signing
		k.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(public.Algorithm), Key: private}, nil)
		if err != nil {
			return nil, fmt.Errorf("use the key of service-account tokens: %w", err)
		}
	}
	for _, key := range verify {
		public, err := newJWK(key)
		if err != nil {
			return nil, err
		}
		if len(k.byID(public.KeyID)) == 0 {
			k.public = append(k.public, public)
		}
	}
	return k, nil
}

// byID returns the keys that may have signed a token with that key ID; without an ID, all keys.
func (k *keyring) byID(id string) []jose.JSONWebKey {
	if id == "" {
		return k.public
	}
	for i := range k.public {
		if k.public[i].KeyID == id {
			return k.public[i : i+1]
		}
	}
	return nil
}

// newJWK describes a public key. Its ID is a hash of it, so that equal keys have equal IDs in every server of a
// cluster.
func newJWK(key crypto.PublicKey) (jose.JSONWebKey, error) {
	alg, err := algorithm(key)
	if err != nil {
		return jose.JSONWebKey{}, err
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return jose.JSONWebKey{}, fmt.Errorf("encode the public key of service-account tokens: %w", err)
	}
	sum := sha256.Sum256(der)
	return jose.JSONWebKey{
		Key:       key,
		KeyID:     base64.RawURLEncoding.EncodeToString(sum[:]),
		Algorithm: string(alg),
		Use:       "sig",
	}, nil
}

func algorithm(key crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return jose.RS256, nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return jose.ES256, nil
		case elliptic.P384():
			return jose.ES384, nil
		case elliptic.P521():
			return jose.ES512, nil
		}
		return "", errors.New("the key of service-account tokens must be on the curve P-256, P-384 or P-521")
	}
	return "", fmt.Errorf("the key of service-account tokens must be RSA or ECDSA, not %T", key)
}
