package httpproxy

import (
	"net/url"
	"strings"
)

// canonical decodes the percent-encoding of a path, as servers do, except for / and %, so that rules can be compared
// with it. An encoded slash is part of an element and separates none.
func canonical(escaped string) (string, bool) {
	if strings.IndexByte(escaped, '%') < 0 {
		return escaped, true
	}
	var out strings.Builder
	out.Grow(len(escaped))
	for i := 0; i < len(escaped); i++ {
		c := escaped[i]
		if c == '%' {
			if i+2 >= len(escaped) {
				return "", false
			}
			hi, lo := unhex(escaped[i+1]), unhex(escaped[i+2])
			if hi < 0 || lo < 0 {
				return "", false
			}
			c = byte(hi<<4 | lo)
			i += 2
			switch c {
			case '/':
				out.WriteString("%2F")
				continue
			case '%':
				out.WriteString("%25")
				continue
			}
		}
		out.WriteByte(c)
	}
	return out.String(), true
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// pathOf returns the canonical path of a request. It returns false for paths that do not start with a slash, and for
// those with dot segments, because different servers would read them differently.
func pathOf(u *url.URL) (string, bool) {
	p := u.Path
	if u.RawPath != "" || strings.IndexByte(p, '%') >= 0 {
		var ok bool
		if p, ok = canonical(u.EscapedPath()); !ok {
			return "", false
		}
	}
	if len(p) == 0 || p[0] != '/' || hasDotSegments(p) {
		return "", false
	}
	return p, true
}

// hasDotSegments reports whether a server could read an element of a canonical path as "." or "..": also one between encoded
// slashes or backslashes, or one with parameters behind a semicolon. Clients resolve dot segments before they send a
// request; one that does not may try to bypass the rule of another path.
func hasDotSegments(p string) bool {
	if strings.IndexByte(p, '.') < 0 {
		return false
	}
	begin := 0
	for i := 0; i <= len(p); i++ {
		slash := 0
		switch {
		case i == len(p) || p[i] == '/' || p[i] == '\\':
			slash = 1
		case strings.HasPrefix(p[i:], "%2F"):
			slash = 3
		default:
			continue
		}
		element, _, _ := strings.Cut(p[begin:i], ";")
		if element == "." || element == ".." {
			return true
		}
		i += slash - 1
		begin = i + 1
	}
	return false
}

// elements returns the elements of the path of a Prefix rule; a trailing slash does not count.
func elements(p string) []string {
	p = strings.TrimSuffix(strings.TrimPrefix(p, "/"), "/")
	if p == "" {
		return nil
	}
	return strings.Split(p, "/")
}

// rewritten replaces the first n elements of a path; both paths are encoded.
func rewritten(escaped string, n int, instead string) string {
	rest := escaped
	for range n {
		at := strings.IndexByte(rest[1:], '/')
		if at < 0 {
			rest = ""
			break
		}
		rest = rest[at+1:]
	}
	out := strings.TrimSuffix(instead, "/") + rest
	if out == "" {
		return "/"
	}
	return out
}
