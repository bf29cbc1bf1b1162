package pki

import (
	"crypto"
	"crypto/x509"
	"slices"
	"time"
)

// Rotation of a certificate authority. In the last fifth of its life an authority gets a successor, whose certificate stands behind
// its own in the bundle and whose key is stored beside its own. For a while the successor is only trusted, so that everybody gets the
// new bundle; then it signs, and the former one is only trusted, until it expires and is dropped. The state follows from the files and
// the time alone, and each step leaves files that the next start understands.

// authorityState is what the folder has of one authority.
type authorityState struct {
	// name is the common name of authorities that proa makes.
	name string
	// certs are the bundle in the order of the file: the one that signs first.
	certs []*x509.Certificate
	// key belongs to the certificate that signs, and next to the new authority; nil without one.
	key, next crypto.Signer
	// shared says that other servers have copies of the folder, so that none makes a new authority by itself.
	shared bool
}

// step is one step of a rotation.
type step string

const (
	stepKeep     step = "keep"
	stepMake     step = "make a successor"         // a key and a certificate
	stepCertify  step = "certify the successor"    // its key exists, its certificate does not
	stepPromote  step = "let the successor sign"   // its certificate goes to the front
	stepMoveKey  step = "move the successor's key" // its certificate is in front, its key not in its place yet
	stepReplace  step = "begin anew"               // it has expired, and there is no successor
	stepDrop     step = "drop what has expired"    // former authorities
	stepWarn     step = "warn that it ends"        // an operator provided it, or it is shared
	stepRefuse   step = "refuse: expired"          // an operator provided it
	stepMismatch step = "refuse: not the key's"    // certificate and key are of different authorities
	stepNoCA     step = "refuse: not an authority" // it may sign nothing
)

// decide returns the next step. It is called again after each step, until nothing is left but to keep, warn or refuse.
func (h *authorityState) decide(now time.Time) step {
	signer := h.certs[0]
	switch {
	case h.next != nil && samePublicKey(signer, h.next):
		return stepMoveKey
	case !samePublicKey(signer, h.key):
		return stepMismatch
	case !signer.IsCA:
		return stepNoCA
	case !h.isOwn(signer):
		return decideForeign(signer, now)
	}
	return h.decideOwn(signer, now)
}

// decideOwn returns the next step for an authority that proa has made.
func (h *authorityState) decideOwn(signer *x509.Certificate, now time.Time) step {
	successor, expired := h.successor(now), now.After(signer.NotAfter)
	switch {
	case successor != nil && (expired || !now.Before(promotionTime(signer, successor))):
		return stepPromote
	case expired:
		return stepReplace
	case successor == nil && h.next != nil:
		return stepCertify
	case slices.ContainsFunc(h.certs, h.isExpiredOwn(now)):
		return stepDrop
	case successor != nil || !isEnding(signer, now):
		return stepKeep
	case h.shared:
		return stepWarn
	}
	return stepMake
}

// decideForeign returns the next step for an authority that an operator has provided: proa only warns before its end.
func decideForeign(signer *x509.Certificate, now time.Time) step {
	switch {
	case now.After(signer.NotAfter):
		return stepRefuse
	case isEnding(signer, now):
		return stepWarn
	}
	return stepKeep
}

// isOwn tells whether proa has made an authority: selfSign gives it one name, as subject and as DNS name, and nothing
// else.
func (h *authorityState) isOwn(c *x509.Certificate) bool {
	return c.Subject.String() == "CN="+h.name && slices.Equal(c.DNSNames, []string{h.name}) && c.CheckSignatureFrom(c) == nil
}

// successor returns the certificate of the new authority; nil if there is none that is valid.
func (h *authorityState) successor(now time.Time) *x509.Certificate {
	for _, c := range h.certs[1:] {
		if h.next != nil && samePublicKey(c, h.next) && h.isOwn(c) && !now.After(c.NotAfter) {
			return c
		}
	}
	return nil
}

// isExpiredOwn returns a predicate for authorities that proa has made and that have expired. Others may be in the bundle for a
// reason.
func (h *authorityState) isExpiredOwn(now time.Time) func(*x509.Certificate) bool {
	return func(c *x509.Certificate) bool { return now.After(c.NotAfter) && h.isOwn(c) }
}

// isEnding tells whether an authority is in the last fifth of its life.
func isEnding(c *x509.Certificate, now time.Time) bool {
	return now.After(c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / 5))
}

// promotionTime returns when a new authority begins to sign: halfway between its own beginning and the end of the former
// one, but after a year at the latest. By then everybody has the bundle, and the certificates of the former one expire
// before it does.
func promotionTime(former, successor *x509.Certificate) time.Time {
	return successor.NotBefore.Add(min(leafLife, former.NotAfter.Sub(successor.NotBefore)/2))
}
