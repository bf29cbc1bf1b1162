package credentials

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"regexp"
)

// JoinToken lets a node join a cluster: it has the bootstrap token by which the server authenticates the node, and the
// fingerprint of the certificate authority by which the node authenticates the server.
type JoinToken struct {
	ID, Secret string
	// CA is the SHA-256 of the certificate of the cluster's authority, or of its public key.
	CA string
}

func (t JoinToken) String() string { return t.ID + "." + t.Secret + "." + t.CA }

// Bearer returns the bootstrap token, which is the part that is sent to the server.
func (t JoinToken) Bearer() string { return t.ID + "." + t.Secret }

// ParseJoinToken parses a token.
func ParseJoinToken(text string) (JoinToken, error) {
	m := regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})\.([0-9a-f]{64})$`).FindStringSubmatch(text)
	if m == nil {
		return JoinToken{}, errors.New("the token is not one that \"proa token create\" prints, ID.SECRET.HASH with the SHA-256 of the certificate of the cluster's authority")
	}
	return JoinToken{m[1], m[2], m[3]}, nil
}

// NewJoinToken returns the token of a cluster whose certificate authority is given as PEM.
func NewJoinToken(id, secret string, ca []byte) (JoinToken, error) {
	block, _ := pem.Decode(ca)
	if block == nil {
		return JoinToken{}, errors.New("the certificate of the cluster's authority is not PEM")
	}
	return JoinToken{id, secret, fingerprint(block.Bytes)}, nil
}

// Names tells whether the token has the fingerprint of a certificate, or of its public key, which kubeadm prints as
// --discovery-token-ca-cert-hash.
func (t JoinToken) Names(cert *x509.Certificate) bool {
	return fingerprint(cert.Raw) == t.CA || fingerprint(cert.RawSubjectPublicKeyInfo) == t.CA
}

// fingerprint returns the SHA-256 by which a token names an authority.
func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}
