package webhookclient

import (
	"fmt"
	"net/http"
	"net/url"
)

// refuseRedirect is the CheckRedirect of HTTP clients: it returns the redirect as the answer. Following it would send
// the request, and a user's token in it, to any server that the answer names, even to one that only this machine can
// reach.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// answerError returns the error for an answer that is not a success. It does not quote the body, which may repeat the
// request and would end up in logs.
func answerError(who string, at *url.URL, res *http.Response) error {
	if res.StatusCode >= 300 && res.StatusCode < 400 {
		return fmt.Errorf("%s at %s answered %s; redirects are not followed, so give the URL to which it leads if you trust it", who, redactedURL(at), res.Status)
	}
	return fmt.Errorf("%s at %s answered %s", who, redactedURL(at), res.Status)
}

// redactedURL returns a URL for logs: without password and query.
func redactedURL(u *url.URL) string {
	plain := *u
	plain.RawQuery, plain.ForceQuery, plain.Fragment = "", false, ""
	return plain.Redacted()
}
