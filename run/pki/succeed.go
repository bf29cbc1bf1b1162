package pki

import (
	"crypto"
	"crypto/x509"
	"slices"
	"time"
)

// Authorities succeed each other. In the last fifth of its life an authority gets an heir, whose certificate stands behind its
// own in the bundle and whose key waits beside its own. For a while the heir is only trusted, so that everybody gets to know the
// new bundle; then it signs, and the former one is only trusted, until it expires and goes. Which of these it is follows from the
// files and the time alone, and each step leaves files that the next start understands.

// holding is what the folder has of one authority.
type holding struct {
	// name is the common name of authorities that are made here.
	name string
	// certs are the bundle in the order of the file: the one that signs first.
	certs []*x509.Certificate
	// key is that of the one that signs, and next that of its heir; nil without one.
	key, next crypto.Signer
	// shared says that other servers have copies of the folder, and none makes an heir by itself.
	shared bool
}

// step is one thing to do with an authority.
type step string

const (
	stepKeep    step = "keep"
	stepMake    step = "make an heir"             // a key and a certificate
	stepName    step = "certify the heir"         // the key is there and waits for its certificate
	stepHandOn  step = "let the heir sign"        // its certificate goes to the front
	stepMoveKey step = "move the heir's key"      // its certificate is in front, its key not in its place yet
	stepReplace step = "begin anew"               // nobody is left to hand on
	stepDrop    step = "drop what has expired"    // former authorities
	stepWarn    step = "warn that it ends"        // it was brought here, or is shared
	stepRefuse  step = "refuse: expired"          // it was brought here
	stepUnlike  step = "refuse: not the key's"    // certificate and key are of different authorities
	stepNoCA    step = "refuse: not an authority" // it may sign nothing
)

// decide says what to do next. It is asked again after each step, until there is nothing but to keep, warn or refuse.
func (h *holding) decide(now time.Time) step {
	signer := h.certs[0]
	switch {
	case h.next != nil && samePublicKey(signer, h.next):
		return stepMoveKey
	case !samePublicKey(signer, h.key):
		return stepUnlike
	case !signer.IsCA:
		return stepNoCA
	case !h.own(signer):
		return stranger(signer, now)
	}
	return h.due(signer, now)
}

// due says what to do with an authority that was made here.
func (h *holding) due(signer *x509.Certificate, now time.Time) step {
	heir, expired := h.heir(now), now.After(signer.NotAfter)
	switch {
	case heir != nil && (expired || !now.Before(handover(signer, heir))):
		return stepHandOn
	case expired:
		return stepReplace
	case heir == nil && h.next != nil:
		return stepName
	case slices.ContainsFunc(h.certs, h.gone(now)):
		return stepDrop
	case heir != nil || !ending(signer, now):
		return stepKeep
	case h.shared:
		return stepWarn
	}
	return stepMake
}

// stranger says what to do with an authority that somebody brought: nothing but to speak of its end.
func stranger(signer *x509.Certificate, now time.Time) step {
	switch {
	case now.After(signer.NotAfter):
		return stepRefuse
	case ending(signer, now):
		return stepWarn
	}
	return stepKeep
}

// own says that an authority was made here: selfSign gives it one name, as subject and as DNS name, and nothing else.
func (h *holding) own(c *x509.Certificate) bool {
	return c.Subject.String() == "CN="+h.name && slices.Equal(c.DNSNames, []string{h.name}) && c.CheckSignatureFrom(c) == nil
}

// heir is the certificate of the heir's key, nil if there is none that is good.
func (h *holding) heir(now time.Time) *x509.Certificate {
	for _, c := range h.certs[1:] {
		if h.next != nil && samePublicKey(c, h.next) && h.own(c) && !now.After(c.NotAfter) {
			return c
		}
	}
	return nil
}

// gone are those that were made here and have expired. Others may stand in the bundle for a reason.
func (h *holding) gone(now time.Time) func(*x509.Certificate) bool {
	return func(c *x509.Certificate) bool { return now.After(c.NotAfter) && h.own(c) }
}

// ending says that an authority is in the last fifth of its life.
func ending(c *x509.Certificate, now time.Time) bool {
	return now.After(c.NotAfter.Add(-c.NotAfter.Sub(c.NotBefore) / 5))
}

// handover is when an heir begins to sign: halfway between its own beginning and the end of the former one, but after a year at
// the latest. By then everybody has the bundle, and what the former one has signed ends before it does.
func handover(former, heir *x509.Certificate) time.Time {
	return heir.NotBefore.Add(min(leafLife, former.NotAfter.Sub(heir.NotBefore)/2))
}
