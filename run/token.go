package run

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"net/netip"
	"net/url"
	"regexp"
)

// Token lets a node join: the bootstrap token by which the server knows it, and the authority by which it knows the server.
type Token struct {
	ID, Secret string
	// CA is the SHA-256 of the certificate of the cluster's authority, or of its public key.
	CA string
}

func (t Token) String() string { return t.ID + "." + t.Secret + "." + t.CA }

// Bearer is the part that the server is shown.
func (t Token) Bearer() string { return t.ID + "." + t.Secret }

// ParseToken reads a token.
func ParseToken(text string) (Token, error) {
	m := regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})\.([0-9a-f]{64})$`).FindStringSubmatch(text)
	if m == nil {
		return Token{}, errors.New("the token is not one that \"proa token create\" prints, ID.SECRET.HASH with the SHA-256 of the certificate of the cluster's authority")
	}
	return Token{m[1], m[2], m[3]}, nil
}

// NewToken makes the token of a cluster, whose authority is given as PEM.
func NewToken(id, secret string, ca []byte) (Token, error) {
	block, _ := pem.Decode(ca)
	if block == nil {
		return Token{}, errors.New("the certificate of the cluster's authority is not PEM")
	}
	return Token{id, secret, fingerprint(block.Bytes)}, nil
}

// ReachableURL is the URL of a server of this machine as others reach it.
func ReachableURL(own string) string {
	u, err := url.Parse(own)
	if err != nil {
		return own
	}
	a, err := netip.ParseAddrPort(u.Host)
	if err != nil || !a.Addr().IsLoopback() {
		return own
	}
	u.Host = facing(a, Config{}).String()
	return u.String()
}

// Names tells whether a certificate is that of the authority that the token names: by the hash of the certificate, or by that of its public
// key, which kubeadm prints as --discovery-token-ca-cert-hash.
func (t Token) Names(cert *x509.Certificate) bool {
	return fingerprint(cert.Raw) == t.CA || fingerprint(cert.RawSubjectPublicKeyInfo) == t.CA
}

// fingerprint is how a token names an authority.
func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}
