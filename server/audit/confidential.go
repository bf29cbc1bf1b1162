package audit

import (
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// quotesBody reports whether an error of this reason may repeat what the client has sent. The others only contain names
// and permissions.
func quotesBody(r metav1.StatusReason) bool {
	switch r {
	case metav1.StatusReasonUnauthorized, metav1.StatusReasonForbidden, metav1.StatusReasonNotFound, metav1.StatusReasonAlreadyExists,
		metav1.StatusReasonConflict,
		metav1.StatusReasonGone, metav1.StatusReasonExpired, metav1.StatusReasonTooManyRequests, metav1.StatusReasonMethodNotAllowed,
		metav1.StatusReasonTimeout,
		metav1.StatusReasonServerTimeout, metav1.StatusReasonServiceUnavailable, metav1.StatusReasonNotAcceptable,
		metav1.StatusReasonRequestEntityTooLarge:
		return false
	}
	return true
}

// withoutTokens returns the URI of a request for the log. The API accepts no credentials in a query, but clients of
// other systems are used to sending them there.
func withoutTokens(u *url.URL) string {
	if u.RawQuery == "" {
		return u.RequestURI()
	}
	parts := strings.FieldsFunc(u.RawQuery, func(c rune) bool { return c == '&' || c == ';' })
	changed := false
	for i, p := range parts {
		key, _, _ := strings.Cut(p, "=")
		if name, err := url.QueryUnescape(key); err == nil {
			key = name
		}
		if key = strings.ToLower(key); strings.Contains(key, "token") || strings.Contains(key, "password") ||
			strings.Contains(key, "secret") {
			parts[i], changed = key+"=REDACTED", true
		}
	}
	if !changed {
		return u.RequestURI()
	}
	plain := *u
	plain.RawQuery = strings.Join(parts, "&")
	return plain.RequestURI()
}
