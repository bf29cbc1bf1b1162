// Package refusal works out what the record of a refused write says: which hop has refused it, and why.
package refusal

import (
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/hop"
	"proa.dev/server/apistatus"
)

// Hop returns the hop from which an error comes when no hop has said that it refuses the request: the store knows which
// objects exist and at which revision, and everything else is about the body. A store that does not answer is hop 7, whichever hop has
// asked it: admission asks whether the namespace exists before anything is written.
func Hop(err error) hop.Hop {
	if apistatus.IsStoreUnavailable(err) {
		return hop.Commit
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return hop.Commit
	}
	return hop.Schema
}

// Text returns the message of an error, short and printable. If the kind is confidential, it returns the reason only, because
// the message may quote the object.
func Text(err error, body []byte, confidential bool) string {
	st := apistatus.Of(err)
	text := hop.Printable(withoutBody(st.Message, body), hop.MaxText)
	if confidential || text == "" {
		return string(st.Reason)
	}
	return text
}

// withoutBody returns a message up to where it begins to quote the body of the request. A body that is no object may be
// anything, for example a Secret that was sent to the wrong path.
func withoutBody(message string, body []byte) string {
	const enough = 16
	if len(body) == 0 {
		return message
	}
	message, _, _ = strings.Cut(message, string(body[:min(len(body), enough)]))
	return message
}
