package image

import (
	"fmt"
	"strings"
)

// Verify says when a Pod must show that it could pull an image that is present already. Otherwise a Pod could run the
// private image of another user just because it knows its name.
type Verify string

// The policies, with the names that kubelets give them.
const (
	NeverVerify Verify = "NeverVerify"
	// NeverVerifyPreloadedImages trusts images that were not pulled for a Pod. It is the default.
	NeverVerifyPreloadedImages   Verify = "NeverVerifyPreloadedImages"
	NeverVerifyAllowlistedImages Verify = "NeverVerifyAllowlistedImages"
	AlwaysVerify                 Verify = "AlwaysVerify"
)

// check validates a policy and its allowlist.
func (v Verify) check(allowed []string) error {
	switch v {
	case "", NeverVerify, NeverVerifyPreloadedImages, NeverVerifyAllowlistedImages, AlwaysVerify:
	default:
		return fmt.Errorf("unknown image pull credential verification policy: %v", v)
	}
	for _, pattern := range allowed {
		name, wild := strings.CutSuffix(pattern, "/*")
		switch {
		case pattern != strings.TrimSpace(pattern):
			return fmt.Errorf("leading/trailing spaces are not allowed: %s", pattern)
		case wild && name == "":
			return fmt.Errorf("at least registry hostname is required")
		case strings.Contains(name, "*"):
			return fmt.Errorf("not a valid wildcard pattern, only patterns ending with '/*' are allowed: %s", pattern)
		case wild:
		case plain(pattern) != pattern:
			return fmt.Errorf("neither tag nor digest is accepted in an image reference: %s", pattern)
		default:
			if _, err := ParseName(pattern); err != nil {
				return err
			}
		}
	}
	return nil
}

// needed reports whether an image must be verified. pulled says that it was pulled for a Pod.
func (v Verify) needed(image string, allowed []string, pulled bool) bool {
	switch v {
	case NeverVerify:
		return false
	case AlwaysVerify:
		return true
	case NeverVerifyAllowlistedImages:
		name := plain(image)
		for _, pattern := range allowed {
			if prefix, wild := strings.CutSuffix(pattern, "*"); wild && strings.HasPrefix(name, prefix) || name == pattern {
				return false
			}
		}
		return true
	default: // NeverVerifyPreloadedImages
		return pulled
	}
}

// mayUse reports whether a Pod may use an image that is present, without pulling it again.
func (m *Images) mayUse(image, id string, logins func() (podLogins, error)) (bool, error) {
	r, pulled, err := m.records.of(image, id)
	if err != nil {
		// A record that cannot be read protects nobody; a pull decides it.
		m.Log.Warn("cannot read who may use an image", "image", image, "err", err)
		return false, nil
	}
	if !m.Verify.needed(image, m.Allowed, pulled) {
		return true, nil
	}
	known, ok := r.Mapping[plain(image)]
	switch {
	case r.Ref == "" || !ok:
		return false, nil
	case known.Everybody:
		return true, nil
	case len(known.Secrets) == 0 && len(known.Accounts) == 0:
		return false, nil
	}
	ls, err := logins()
	if err != nil {
		return false, err
	}
	for _, l := range ls.logins {
		if isNew, ok := known.matches(l); ok {
			if isNew {
				m.records.pulled(image, id, &l, m.Log)
			}
			return true, nil
		}
	}
	return false, nil
}
