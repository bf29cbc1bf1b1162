package messages

import (
	"testing"

	"proa.dev/hop"
)

// TestPull holds that the name of an image, its digest and addresses do not count as reasons.
func TestPull(t *testing.T) {
	for message, want := range map[string]PullFailure{
		`failed to pull "r/denied:1": dial tcp: i/o timeout`:                                     Unreachable,
		`failed to do request: Head "https://r/v2/tls-401/manifests/1": no space left on device`: NoSpace,
		`failed to resolve r/app@sha256:0401403404: connection refused`:                          Unreachable,
		`unexpected status from HEAD request to https://r/v2/app/manifests/1: 403 Forbidden`:     Unauthorized,
		`r/app:1: not found`:                            NoSuchImage,
		`x509: certificate signed by unknown authority`: Untrusted,
		``: UnknownFailure,
	} {
		if got := Pull(message, "R/denied:1"); got != want {
			t.Errorf("%s: %d, want %d", message, got, want)
		}
	}
}

// TestRefusal holds that a hop is named only where the text tells it.
func TestRefusal(t *testing.T) {
	for message, want := range map[string]hop.Hop{
		`pods "a" is forbidden: exceeded quota: q`:                                                   hop.Validate,
		`pods "a" is forbidden: exceeded quota: stored bytes of the namespace, requested: bytes=1Ki`: hop.Commit,
		`admission webhook "w" denied the request: no`:                                               0,
		`Internal error occurred: failed calling webhook "w": gone`:                                  0,
		`Pod "a" is invalid: spec`:                                                                   hop.Schema,
		`something else`:                                                                             hop.Control,
		`pods "a" is forbidden: User "system:serviceaccount:default:x" cannot create resource "pods" in API group ""`:         hop.Authorize,
		`pods "a" is forbidden: [minimum cpu usage per Container is 1, but request is 1m, maximum memory usage per Pod is 1]`: hop.Validate,
		`pods "a" is forbidden: cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000`:            hop.Validate,
		`pods "a" is forbidden: error looking up service account default/x: serviceaccount "x" not found`:                     hop.Mutate,
		`pods "a" is forbidden: error looking up service account default/x: timeout`:                                          0,
		`pods "a" is forbidden: no PriorityClass with name high was found`:                                                    hop.Mutate,
		`pods "a" is forbidden: unable to create new content in namespace shop because it is being terminated`:                hop.Mutate,
		`pods "a" is forbidden: violates PodSecurity "restricted:latest": privileged`:                                         hop.Validate,
		`pods "a" is forbidden: pod tolerations conflict with those of the namespace`:                                         0,
	} {
		if got, _, _ := Refusal(message); got != want {
			t.Errorf("%s: hop %d, want %d", message, got, want)
		}
	}
}
