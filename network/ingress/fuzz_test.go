package ingress

import (
	"strings"
	"testing"
)

// FuzzOptions checks that the options are within their bounds, and that each problem names its annotation.
func FuzzOptions(f *testing.F) {
	f.Add("true", "30s", "10Mi", "GRPC", "/base")
	f.Add("yes", "-1h", "1e30", "gopher", "/a/../b")
	f.Fuzz(func(t *testing.T, redirect, timeout, size, protocol, rewrite string) {
		o, problems := parseOptions(map[string]string{annotationRedirect: redirect, annotationTimeout: timeout, annotationMaxBody: size,
			annotationProtocol: protocol, annotationRewrite: rewrite, "another.example/x": size})
		if o.filters.Timeout < 0 || o.filters.Timeout > longestTimeout || o.filters.MaxBody < 0 || len(o.filters.Rewrite) > longestRewrite {
			t.Errorf("out of bounds: %+v", o)
		}
		if r := o.filters.Rewrite; strings.Contains(r+"/", "/../") || strings.Contains(r, "//") || strings.ContainsAny(r, "%?#\\") {
			t.Errorf("a path with two meanings: %q", r)
		}
		for _, p := range problems {
			if !strings.HasPrefix(p, annotationPrefix) {
				t.Errorf("a problem of something else: %q", p)
			}
		}
	})
}
