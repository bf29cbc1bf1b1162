package run

import (
	"fmt"
	"net/http"
	"net/url"
)

// refuseRedirect is the CheckRedirect of clients that ask for the server: the answer with the redirect is the answer. To follow it would
// send what was asked, a user's token among it, to whomever the answer names, and would let that name be one that only this machine
// can reach.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// refused says that an answer was no success. It quotes nothing of the answer's body, which may repeat what was asked and ends in logs.
func refused(who string, at *url.URL, res *http.Response) error {
	if res.StatusCode >= 300 && res.StatusCode < 400 {
		return fmt.Errorf("%s at %s answered %s; redirects are not followed, so give the URL to which it leads if you trust it", who, shown(at), res.Status)
	}
	return fmt.Errorf("%s at %s answered %s", who, shown(at), res.Status)
}

// shown is a URL as logs may have it: without a password and without its query.
func shown(u *url.URL) string {
	plain := *u
	plain.RawQuery, plain.ForceQuery, plain.Fragment = "", false, ""
	return plain.Redacted()
}
