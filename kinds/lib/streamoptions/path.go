package streamoptions

import (
	"path"
	"strings"
)

// CleanPath returns a decoded URL path of an agent in its canonical form: rooted, with single slashes, and with its
// trailing slash if it has one; an empty path stays empty. It reports false for a path that no honest client needs
// and that a later reader could understand as another one: with a "." or ".." segment, a backslash, or a control
// character. Authorize the path that is returned, and forward that path.
func CleanPath(p string) (string, bool) {
	if strings.ContainsFunc(p, func(c rune) bool { return c == '\\' || c < 0x20 || c == 0x7f }) {
		return "", false
	}
	for segment := range strings.SplitSeq(p, "/") {
		if segment == "." || segment == ".." {
			return "", false
		}
	}
	if p == "" {
		return "", true
	}
	out := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && out != "/" {
		out += "/"
	}
	return out, true
}

// RunsInContainer reports whether a clean path of an agent opens a stream into a container, or runs a command there.
// That requires permission to create, whatever the HTTP method is: a WebSocket begins as a GET.
func RunsInContainer(clean string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(clean, "/"), "/")
	switch first {
	case "exec", "attach", "portForward", "run", "cri":
		return true
	}
	return false
}
