// Package messages recognizes what the messages of other programs mean: refusals of the API server and failures to pull an image.
package messages

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"proa.dev/hop"
)

// refusal is what a text in the message of a refused write means.
type refusal struct {
	text         *regexp.Regexp
	hop          hop.Hop
	what, advice string
}

// refusals returns the texts that are known, the more special ones first.
var refusals = sync.OnceValue(func() []refusal {
	return []refusal{
		{regexp.MustCompile(`exceeded quota: stored bytes of the namespace`), hop.Commit, "its namespace has as many bytes in the store as it may",
			"delete what is not needed in the namespace, or ask an administrator to raise --max-namespace-bytes"},
		{regexp.MustCompile(`(?i)exceeded quota|failed quota`), hop.Validate, "a ResourceQuota does not allow it",
			"kubectl describe quota shows what is used; raise the quota or free some of it"},
		{regexp.MustCompile(`(?i)validatingadmissionpolicy|denied the request: expression`), hop.Validate, "an admission policy denies it",
			"change the object as the message says, or the ValidatingAdmissionPolicy that it names"},
		{regexp.MustCompile(`(?is)admission webhook.*denied`), 0, "an admission webhook denies it",
			"change the object as the message says, or ask who runs the webhook that it names"},
		{regexp.MustCompile(`(?i)failed calling webhook`), 0, "an admission webhook does not answer",
			"bring the webhook's server back; a webhook that may fail has failurePolicy: Ignore"},
		{regexp.MustCompile(`(?i)violates podsecurity`), hop.Validate, "the Pod Security level of the namespace forbids it",
			"change the securityContext as the message says, or the label pod-security.kubernetes.io/enforce of the namespace"},
		{regexp.MustCompile(`is forbidden: .*(imum \S+ usage per \S+ is|max limit to request ratio per) `), hop.Validate,
			"a LimitRange does not allow it", "kubectl describe limitrange shows the bounds; change requests and limits, or the LimitRange"},
		{regexp.MustCompile(`is forbidden: error looking up service account .* not found`), hop.Mutate, "its ServiceAccount does not exist",
			"create the ServiceAccount that the message names, or correct serviceAccountName"},
		{regexp.MustCompile(`is forbidden: no PriorityClass with name .* was found`), hop.Mutate, "its PriorityClass does not exist",
			"create the PriorityClass that the message names, or correct priorityClassName"},
		{regexp.MustCompile(`is forbidden: unable to create new content in namespace .* because it is being terminated`), hop.Mutate,
			"its namespace is being deleted", "use another namespace; proa why namespace/NAME says what keeps this one"},
		{regexp.MustCompile(`User "[^"]*" cannot `), hop.Authorize, "no role allows it",
			"give the user or the service account that the message names a role that allows it"},
		{regexp.MustCompile(`(?i)is forbidden`), 0, "it is forbidden", "change what the message names"},
		{regexp.MustCompile(`(?i)is invalid`), hop.Schema, "its Pod template is not valid", "correct the field that the message names"},
	}
})

// Refusal says at which hop a write was refused, by the text of the error. The hop is zero where the text does not tell: a webhook may be
// one that changes objects or one that checks them, and admission plugins say that something is forbidden as authorization does.
func Refusal(message string) (h hop.Hop, what, advice string) {
	for _, r := range refusals() {
		if r.text.MatchString(message) {
			return r.hop, r.what, r.advice
		}
	}
	return hop.Control, "the API server refuses it", "read the message"
}

// IsOutage tells whether a message says that the store of the API server does not answer.
func IsOutage(message string) bool {
	return strings.Contains(message, "the store is not available") || strings.Contains(message, "etcdserver: request timed out") ||
		strings.Contains(message, "etcdserver: no leader")
}

// IsUndecodable tells whether a message says that the body of a request is not an object of its kind.
func IsUndecodable(message string) bool {
	return strings.Contains(message, "cannot be handled as a ") || strings.Contains(message, "decoding error: ") ||
		strings.Contains(message, "the object provided is unrecognized")
}

// IsSameRefusal tells whether two messages are about refusals for the same reason. The names of objects in them may differ.
func IsSameRefusal(a, b string) bool {
	_, one, _ := Refusal(a)
	_, other, _ := Refusal(b)
	return one == other && Webhook(a) == Webhook(b)
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
