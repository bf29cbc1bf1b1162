package preflight

import (
	"strconv"
	"strings"
)

// version is the major and minor version of a kernel.
type version struct{ major, minor int }

func parseVersion(release string) (v version, ok bool) {
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return v, false
	}
	digits := func(s string) string {
		return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return v, false
	}
	minor, err := strconv.Atoi(digits(parts[1]))
	return version{major, minor}, err == nil
}

func (v version) before(w version) bool {
	return v.major < w.major || v.major == w.major && v.minor < w.minor
}
