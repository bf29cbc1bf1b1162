package bootstraptoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const signaturePrefix = "jws-kubeconfig-"

// signedData returns the data of the ConfigMap with a signature by every valid token and no others, or nil if have is so already.
// again is the time until the first of these tokens expires.
func signedData(have map[string]string, tokens iter.Seq[*corev1.Secret], now time.Time) (want map[string]string, again time.Duration) {
	content, found := have["kubeconfig"]
	if !found {
		return nil, 0
	}
	want = maps.Clone(have)
	maps.DeleteFunc(want, func(k, _ string) bool { return strings.HasPrefix(k, signaturePrefix) })
	for s := range tokens {
		id, secret, ok := signingToken(s, now)
		if !ok {
			continue
		}
		want[signaturePrefix+id] = signature(content, id, secret)
		if left, _ := expiration(s, now); left > 0 && (again == 0 || left < again) {
			again = left
		}
	}
	if maps.Equal(have, want) {
		return nil, again
	}
	return want, again
}

// signingToken returns the two parts of a token if it is valid and its usages include signing.
func signingToken(s *corev1.Secret, now time.Time) (id, secret string, ok bool) {
	if !isToken(s) {
		return "", "", false
	}
	named, ok := strings.CutPrefix(s.Name, "bootstrap-token-")
	id, secret = string(s.Data["token-id"]), string(s.Data["token-secret"])
	if !ok || !isID(named) || named != id || secret == "" || string(s.Data["usage-bootstrap-signing"]) != "true" {
		return "", "", false
	}
	_, expired := expiration(s, now)
	return id, secret, !expired
}

func isID(s string) bool {
	other := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	return len(s) == 6 && strings.IndexFunc(s, other) < 0
}

// expiration returns how long a token is still valid; 0 if it does not expire. A token with an invalid time has expired.
func expiration(s *corev1.Secret, now time.Time) (left time.Duration, expired bool) {
	text := string(s.Data["expiration"])
	if text == "" {
		return 0, false
	}
	end, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0, true
	}
	left = end.Sub(now)
	return max(0, left), left <= 0
}

// signature returns a JWS with detached content, as in appendix F of RFC 7515. Verifiers compare the text, so the header must
// always be written in the same way.
func signature(content, id, secret string) string {
	encode := base64.RawURLEncoding.EncodeToString
	header := encode(fmt.Appendf(nil, `{"alg":"HS256","kid":"%s"}`, id))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(header + "." + encode([]byte(content))))
	return header + ".." + encode(mac.Sum(nil))
}
