package ingress

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"proa.dev/kinds/lib/quantity"
	"proa.dev/network/httpproxy"
)

// The annotations that are read. Each holds one value.
const (
	annotationPrefix   = "ingress.proa.dev/"
	annotationRedirect = annotationPrefix + "ssl-redirect"
	annotationTimeout  = annotationPrefix + "request-timeout"
	annotationMaxBody  = annotationPrefix + "max-body-size"
	annotationProtocol = annotationPrefix + "backend-protocol"
	annotationRewrite  = annotationPrefix + "rewrite-prefix"
	annotationCA       = annotationPrefix + "backend-ca"
)

const (
	longestTimeout = 24 * time.Hour
	longestRewrite = 1024
)

// options are the values of the annotations.
type options struct {
	filters  httpproxy.Filters
	protocol httpproxy.Protocol // empty for that of the Service
	ca       string             // the Secret with the CA certificates for HTTPS endpoints; empty for none
}

// parseOptions reads the annotations. Invalid ones are ignored and returned as problems.
func parseOptions(annotations map[string]string) (o options, problems []string) {
	for name, value := range annotations {
		if !strings.HasPrefix(name, annotationPrefix) {
			continue
		}
		if err := o.set(name, value); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v; it counts as not said", name, err))
		}
	}
	slices.Sort(problems)
	return o, problems
}

func (o *options) set(name, value string) error {
	switch name {
	case annotationRedirect:
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%.64q is neither true nor false", value)
		}
		o.filters.ToTLS = on
	case annotationTimeout:
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 || d > longestTimeout {
			return fmt.Errorf("%.64q is not a duration such as 30s, of at most %s", value, longestTimeout)
		}
		o.filters.Timeout = d
	case annotationMaxBody:
		q, err := quantity.Parse(value)
		if err != nil || q.Sign() <= 0 || q.Value() <= 0 {
			return fmt.Errorf("%.64q is not an amount of bytes such as 10Mi", value)
		}
		o.filters.MaxBody = q.Value()
	case annotationProtocol:
		p := httpproxy.Protocol(value)
		if !slices.Contains([]httpproxy.Protocol{httpproxy.HTTP, httpproxy.HTTPS, httpproxy.GRPC, httpproxy.H2C}, p) {
			return fmt.Errorf("%.64q is none of HTTP, HTTPS, GRPC and H2C", value)
		}
		o.protocol = p
	case annotationRewrite:
		if !isCanonicalPath(value) {
			return fmt.Errorf("%.64q is not a path such as /base: it begins with a slash, has letters, digits and -._~ in its elements, and does not climb", value)
		}
		o.filters.Rewrite = value
	case annotationCA:
		// An invalid name counts as a Secret that does not exist, so that endpoints are not used unverified.
		if o.ca = value; len(validation.IsDNS1123Subdomain(value)) > 0 {
			o.ca = "."
			return fmt.Errorf("%.64q is not the name of a Secret", value)
		}
	default:
		return fmt.Errorf("there is no such annotation")
	}
	return nil
}

// isCanonicalPath reports whether every parser reads a path the same way.
func isCanonicalPath(p string) bool {
	if len(p) == 0 || len(p) > longestRewrite || p[0] != '/' {
		return false
	}
	for e := range strings.SplitSeq(p[1:], "/") {
		if e == "." || e == ".." {
			return false
		}
		for _, c := range []byte(e) {
			letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
			if !letter && !strings.ContainsRune("-._~", rune(c)) {
				return false
			}
		}
	}
	return !strings.Contains(p, "//")
}
