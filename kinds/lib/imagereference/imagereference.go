// Package imagereference reads the names of container images: the API server defaults the pull policy by the tag, and nodes
// parse the whole reference before they pull.
package imagereference

import (
	"errors"
	"regexp"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// MaxNameLength bounds the name of a repository with its host.
const MaxNameLength = 255

// Reference is an image reference in its parts.
type Reference struct {
	Host   string // the registry; empty if the reference does not name one
	Name   string // the host and the repository, without tag and digest
	Tag    string
	Digest string
}

// grammar is the grammar of image references; its groups are name, host, tag and digest.
var grammar = sync.OnceValue(func() *regexp.Regexp {
	const (
		label  = `(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])`
		host   = `(?:` + label + `(?:\.` + label + `)*|\[(?:[a-fA-F0-9:]+)\])(?::[0-9]+)?`
		part   = `[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*`
		tag    = `[\w][\w.-]{0,127}`
		digest = `[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[[:xdigit:]]{32,}`
	)
	return regexp.MustCompile(`^((?:(` + host + `)/)?` + part + `(?:/` + part + `)*)(?::(` + tag + `))?(?:@(` + digest + `))?$`)
})

// Match splits a reference by the grammar, and reports whether it matches. It takes the first segment of a path for the host
// wherever that could be one, so callers write the host out (see SplitHost). It checks neither the length of the name nor the
// digest.
func Match(text string) (Reference, bool) {
	m := grammar().FindStringSubmatch(text)
	if m == nil {
		return Reference{}, false
	}
	return Reference{Name: m[1], Host: m[2], Tag: m[3], Digest: m[4]}, true
}

// SplitHost separates the registry from the rest of a reference. The first segment is a registry if it has a dot, a port or an
// upper-case letter, or is localhost; otherwise found is false and rest is the whole text.
func SplitHost(text string) (host, rest string, found bool) {
	first, after, slash := strings.Cut(text, "/")
	if slash && (strings.ContainsAny(first, ".:") || first == "localhost" || strings.ToLower(first) != first) {
		return first, after, true
	}
	return "", text, false
}

// CheckDigest checks algorithm and length of a digest that matches the grammar. An empty digest is valid.
func CheckDigest(digest string) error {
	if digest == "" {
		return nil
	}
	algorithm, hex, _ := strings.Cut(digest, ":")
	size := 0
	switch algorithm {
	case "sha256":
		size = 64
	case "sha384":
		size = 96
	case "sha512":
		size = 128
	}
	switch {
	case size == 0:
		return errors.New("unsupported digest algorithm")
	case len(hex) != size:
		return errors.New("invalid checksum digest length")
	case strings.ToLower(hex) != hex:
		return errors.New("invalid checksum digest format")
	}
	return nil
}

// IsImageID reports whether a text looks like the ID of an image, which no registry resolves.
func IsImageID(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// Tag returns the tag of a reference: "latest" if it has neither tag nor digest, and nothing if the reference is invalid.
func Tag(image string) string {
	if IsImageID(image) {
		return ""
	}
	full := image
	if _, _, found := SplitHost(image); !found {
		full = "docker.io/" + image
	}
	ref, ok := Match(full)
	if !ok || len(ref.Name) > MaxNameLength || CheckDigest(ref.Digest) != nil {
		return ""
	}
	if ref.Tag == "" && ref.Digest == "" {
		return "latest"
	}
	return ref.Tag
}

// PullPolicy returns the default pull policy of an image: Always for the tag "latest", IfNotPresent for every other.
func PullPolicy(image string) corev1.PullPolicy {
	// Most images have another tag, which is seen without the grammar.
	if _, tag, found := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":"); found && !strings.HasPrefix(tag, "latest") {
		return corev1.PullIfNotPresent
	}
	if Tag(image) == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}
