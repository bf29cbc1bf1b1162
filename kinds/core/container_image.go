package core

import (
	"regexp"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// pullPolicyOf is how often an image is pulled when nobody says: always for the moving tag, once for
// all others.
func pullPolicyOf(image string) corev1.PullPolicy {
	// Most images have another tag, which is seen without the grammar.
	if _, tag, found := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":"); found && !strings.HasPrefix(tag, "latest") {
		return corev1.PullIfNotPresent
	}
	if imageTag(image) == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// imageGrammar is the grammar of image references; its groups are name, tag and digest.
var imageGrammar = sync.OnceValue(func() *regexp.Regexp {
	const (
		label  = `(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])`
		host   = `(?:` + label + `(?:\.` + label + `)*|\[(?:[a-fA-F0-9:]+)\])(?::[0-9]+)?`
		part   = `[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*`
		tag    = `[\w][\w.-]{0,127}`
		digest = `[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[[:xdigit:]]{32,}`
	)
	return regexp.MustCompile(`^((?:` + host + `/)?` + part + `(?:/` + part + `)*)(?::(` + tag + `))?(?:@(` + digest + `))?$`)
})

// digestSize is the length of the hexadecimal form of a digest, 0 when the algorithm is not known.
func digestSize(algorithm string) int {
	switch algorithm {
	case "sha256":
		return 64
	case "sha384":
		return 96
	case "sha512":
		return 128
	}
	return 0
}

// imageTag is the tag of an image reference, "latest" when it has neither tag nor digest, and empty when
// it is no valid reference.
func imageTag(image string) string {
	if isImageID(image) {
		return ""
	}
	full := "docker.io/" + image
	if first, rest, found := strings.Cut(image, "/"); found &&
		(strings.ContainsAny(first, ".:") || first == "localhost" || strings.ToLower(first) != first) {
		full = first + "/" + rest
	}
	m := imageGrammar().FindStringSubmatch(full)
	if m == nil || len(m[1]) > 255 {
		return ""
	}
	tag, digest := m[2], m[3]
	if digest != "" {
		algorithm, hex, _ := strings.Cut(digest, ":")
		if digestSize(algorithm) != len(hex) || strings.ToLower(hex) != hex {
			return ""
		}
		return tag
	}
	if tag == "" {
		return "latest"
	}
	return tag
}

// isImageID says whether a reference looks like the ID of an image, which names nothing in a registry.
func isImageID(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}
