// Package messages recognizes what the messages of other programs mean: refusals of the API server and failures to pull an image.
package messages

import (
	"regexp"
	"slices"
	"strings"

	"proa.dev/hop"
)

// Refusal says at which hop a write was refused, by the text of the error. The hop is zero where the text does not tell: a webhook may be
// one that changes objects or one that checks them.
func Refusal(message string) (h hop.Hop, what, advice string) {
	low := strings.ToLower(message)
	switch {
	case strings.Contains(low, "exceeded quota") || strings.Contains(low, "failed quota"):
		return hop.Validate, "a ResourceQuota does not allow it", "kubectl describe quota shows what is used; raise the quota or free some of it"
	case strings.Contains(low, "validatingadmissionpolicy") || strings.Contains(low, "denied the request: expression"):
		return hop.Validate, "an admission policy denies it", "change the object as the message says, or the ValidatingAdmissionPolicy that it names"
	case strings.Contains(low, "admission webhook") && strings.Contains(low, "denied"):
		return 0, "an admission webhook denies it", "change the object as the message says, or ask who runs the webhook that it names"
	case strings.Contains(low, "failed calling webhook"):
		return 0, "an admission webhook does not answer", "bring the webhook's server back; a webhook that may fail has failurePolicy: Ignore"
	case strings.Contains(low, "violates podsecurity"):
		return hop.Validate, "the Pod Security level of the namespace forbids it", "change the securityContext as the message says, or the label pod-security.kubernetes.io/enforce of the namespace"
	case strings.Contains(low, "is forbidden"):
		return hop.Authorize, "it is forbidden", "check the service account and its roles, or what the message names"
	case strings.Contains(low, "is invalid"):
		return hop.Schema, "its Pod template is not valid", "correct the field that the message names"
	}
	return hop.Control, "the API server refuses it", "read the message"
}

// Webhook returns the name of the admission webhook that a refusal is by, or nothing.
func Webhook(message string) string {
	_, rest, found := strings.Cut(message, `webhook "`)
	name, _, ended := strings.Cut(rest, `"`)
	if !found || !ended {
		return ""
	}
	return name
}

// PullFailure is why an image could not be pulled.
type PullFailure int

// The reasons that are told apart.
const (
	UnknownFailure PullFailure = iota
	Unauthorized
	NoSuchImage
	Unreachable
	Untrusted
	NoSpace
)

// names are parts of a message that somebody chose: addresses and digests.
var names = regexp.MustCompile(`https?://[^\s"]+|sha256:[0-9a-f]+`)

// Pull says why an image could not be pulled, by the text of the error. The name of the image is left out of account: it may contain any
// word.
func Pull(message, image string) PullFailure {
	low := strings.ToLower(message)
	if image != "" {
		low = strings.ReplaceAll(low, strings.ToLower(image), "")
	}
	low = names.ReplaceAllString(low, "")
	for _, f := range []struct {
		failure PullFailure
		words   []string
	}{
		{Unauthorized, []string{"unauthorized", "authentication required", "denied", "no basic auth", "401", "403"}},
		{NoSuchImage, []string{"not found", "manifest unknown", "404"}},
		{Unreachable, []string{"no such host", "i/o timeout", "connection refused", "unreachable", "deadline exceeded", "dial tcp",
			"connection reset", "no route"}},
		{Untrusted, []string{"x509", "certificate", "tls"}},
		{NoSpace, []string{"no space left", "disk"}},
	} {
		if slices.ContainsFunc(f.words, func(word string) bool { return strings.Contains(low, word) }) {
			return f.failure
		}
	}
	return UnknownFailure
}
