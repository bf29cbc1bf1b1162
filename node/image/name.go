package image

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// Name is a reference to an image.
type Name struct {
	// Repository is the whole name without tag and digest: docker.io/library/busybox for busybox.
	Repository  string
	Tag, Digest string
}

// grammar is that of a reference with a host; its groups are name, tag and digest.
var grammar = sync.OnceValue(func() *regexp.Regexp {
	const (
		label  = `(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])`
		host   = `(?:` + label + `(?:\.` + label + `)*|\[(?:[a-fA-F0-9:]+)\])(?::[0-9]+)?`
		part   = `[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*`
		tag    = `[\w][\w.-]{0,127}`
		digest = `[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[[:xdigit:]]{32,}`
	)
	return regexp.MustCompile(`^(` + host + `/` + part + `(?:/` + part + `)*)(?::(` + tag + `))?(?:@(` + digest + `))?$`)
})

// maxName bounds the name of a repository.
const maxName = 255

// ParseName reads a reference as people write it. One without a host is meant to be at docker.io; one without tag and digest
// is the latest.
func ParseName(text string) (Name, error) {
	bad := func(why string) (Name, error) {
		return Name{}, fmt.Errorf("couldn't parse image name %q: %s", text, why)
	}
	if len(text) == 64 && strings.Trim(text, "0123456789abcdef") == "" {
		return bad(fmt.Sprintf("invalid repository name (%s), cannot specify 64-byte hexadecimal strings", text))
	}
	host, rest := split(text)
	if bare, _, _ := strings.Cut(rest, ":"); strings.ToLower(bare) != bare {
		return bad(fmt.Sprintf("invalid reference format: repository name (%s) must be lowercase", bare))
	}
	m := grammar().FindStringSubmatch(host + "/" + rest)
	if m == nil {
		return bad("invalid reference format")
	}
	if len(m[1]) > maxName {
		return bad(fmt.Sprintf("repository name must not be more than %v characters", maxName))
	}
	n := Name{Repository: m[1], Tag: m[2], Digest: m[3]}
	if err := checkDigest(n.Digest); err != nil {
		return bad(err.Error())
	}
	if n.Tag == "" && n.Digest == "" {
		n.Tag = "latest"
	}
	return n, nil
}

// split separates the host, which has a dot or a port or is called localhost.
func split(text string) (host, rest string) {
	first, after, found := strings.Cut(text, "/")
	if !found || !strings.ContainsAny(first, ".:") && first != "localhost" && strings.ToLower(first) == first {
		host, rest = "docker.io", text
	} else {
		host, rest = first, after
	}
	if host == "index.docker.io" {
		host = "docker.io"
	}
	if host == "docker.io" && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	return host, rest
}

func checkDigest(digest string) error {
	if digest == "" {
		return nil
	}
	algorithm, hex, _ := strings.Cut(digest, ":")
	size := map[string]int{"sha256": 64, "sha384": 96, "sha512": 128}[algorithm]
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

// tagged adds the tag that is meant to a reference without one, and leaves the rest as it was written: what a name without a
// host means is also the runtime's business.
func tagged(text string, n Name) string {
	if n.Digest == "" && !strings.HasSuffix(text, ":"+n.Tag) {
		return text + ":" + n.Tag
	}
	return text
}

// plain is a reference as it was written, without tag and digest.
func plain(text string) string {
	text, _, _ = strings.Cut(text, "@")
	if i := strings.LastIndexByte(text, ':'); i > strings.LastIndexByte(text, '/') {
		text = text[:i]
	}
	return text
}
