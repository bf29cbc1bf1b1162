package server

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// route is what the path and method of an HTTP request ask for.
type route struct {
	resource  bool // a resource request; otherwise only the path counts
	verb      string
	gvr       schema.GroupVersionResource
	namespace string
	name      string
	sub       string
	rest      string // what follows the subresource
}

// routeOf reads a path as Kubernetes lays them out:
//
//	/api/v1[/watch][/namespaces/NS]/RESOURCE[/NAME[/SUB[/…]]]
//	/apis/GROUP/VERSION[/watch]…
//
// It looks at the decoded path, and a name with a slash in it is no name.
func routeOf(method, urlPath string) route {
	parts := strings.Split(strings.Trim(urlPath, "/"), "/")
	var r route
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		r.gvr.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		r.gvr.Group, r.gvr.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return route{verb: strings.ToLower(method)}
	}
	r.resource = true
	watching := false
	if parts[0] == "watch" && len(parts) > 1 {
		watching, parts = true, parts[1:]
	}
	if parts[0] == "namespaces" && len(parts) > 1 {
		r.namespace = parts[1]
		// The namespace is the resource itself, unless another resource follows.
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			parts = parts[2:]
		}
	}
	r.gvr.Resource = parts[0]
	if len(parts) > 1 {
		r.name = parts[1]
	}
	if len(parts) > 2 {
		r.sub = parts[2]
	}
	if len(parts) > 3 {
		r.rest = strings.Join(parts[3:], "/")
	}
	r.verb = verbOf(method, r.name != "", watching)
	return r
}

func verbOf(method string, named, watching bool) string {
	switch method {
	case http.MethodGet:
		switch {
		case watching:
			return "watch"
		case named:
			return "get"
		}
		return "list"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if named {
			return "delete"
		}
		return "deletecollection"
	}
	return ""
}

// lasts says that a request may take as long as its client wants.
func (r *route) lasts(path string) bool {
	if !r.resource {
		return strings.HasPrefix(path, "/debug/pprof/")
	}
	return r.verb == "watch" || lasts(r.sub)
}

// fits says that the method exists for the path: collections cannot be replaced, objects not be created.
func (r *route) fits(def *kind.Def) bool {
	switch r.verb {
	case "create":
		return (r.name == "") == (r.sub == "") && (def.Scope == kind.Cluster || r.namespace != "")
	case "update", "patch", "get":
		return r.name != ""
	case "":
		return false
	}
	return true
}

// sound says that the names in a route can be names: nothing that climbs, and no separators or control characters.
func (r *route) sound() bool {
	for _, s := range []string{r.namespace, r.name} {
		if s == "" {
			continue
		}
		if len(content.IsPathSegmentName(s)) > 0 || len(s) > 1024 || strings.ContainsFunc(s, func(c rune) bool { return c < 0x20 || c == 0x7f }) {
			return false
		}
	}
	return true
}
