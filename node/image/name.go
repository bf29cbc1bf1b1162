package image

import (
	"fmt"
	"strings"

	"proa.dev/kinds/lib/imagereference"
)

// Name is a reference to an image.
type Name struct {
	// Repository is the whole name without tag and digest: docker.io/library/busybox for busybox.
	Repository  string
	Tag, Digest string
}

// ParseName reads a reference as people write it. One without a host is meant to be at docker.io; one without tag and digest
// is the latest.
func ParseName(text string) (Name, error) {
	bad := func(why string) (Name, error) {
		return Name{}, fmt.Errorf("couldn't parse image name %q: %s", text, why)
	}
	if imagereference.IsImageID(text) {
		return bad(fmt.Sprintf("invalid repository name (%s), cannot specify 64-byte hexadecimal strings", text))
	}
	host, rest := split(text)
	if bare, _, _ := strings.Cut(rest, ":"); strings.ToLower(bare) != bare {
		return bad(fmt.Sprintf("invalid reference format: repository name (%s) must be lowercase", bare))
	}
	ref, ok := imagereference.Match(host + "/" + rest)
	if !ok || ref.Host == "" {
		return bad("invalid reference format")
	}
	if len(ref.Name) > imagereference.MaxNameLength {
		return bad(fmt.Sprintf("repository name must not be more than %v characters", imagereference.MaxNameLength))
	}
	n := Name{Repository: ref.Name, Tag: ref.Tag, Digest: ref.Digest}
	if err := imagereference.CheckDigest(n.Digest); err != nil {
		return bad(err.Error())
	}
	if n.Tag == "" && n.Digest == "" {
		n.Tag = "latest"
	}
	return n, nil
}

// split separates the host, which has a dot or a port or is called localhost.
func split(text string) (host, rest string) {
	host, rest, found := imagereference.SplitHost(text)
	if !found || host == "index.docker.io" {
		host = "docker.io"
	}
	if host == "docker.io" && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	return host, rest
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
