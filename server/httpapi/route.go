package httpapi

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/kind"
	"proa.dev/server/authz"
)

// route is what the path and the method of a request ask for.
type route struct {
	resource  bool // it is for a resource; otherwise only the path counts
	verb      string
	gvr       schema.GroupVersionResource
	namespace string
	name      string
	sub       string
	rest      string // what follows the subresource
}

// routeOf parses a path of the Kubernetes API:
//
//	/api/v1[/watch][/namespaces/NS]/RESOURCE[/NAME[/SUB[/…]]]
//	/apis/GROUP/VERSION[/watch]…
//
// The path is the decoded one, so a name cannot contain a slash.
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
		// It is a request for the Namespace itself, unless another resource follows.
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

// verbOf returns the verb of a method, for an object or a collection.
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

// attributes describes a request of a user for the route to the authorizer.
func (r *route) attributes(who user.Info) authz.Attributes {
	return authz.Attributes{
		User: who, Verb: r.verb, Namespace: r.namespace, IsResource: true,
		Group: r.gvr.Group, Version: r.gvr.Version, Resource: r.gvr.Resource, Subresource: r.sub, Name: r.name,
	}
}

// isLongRunning says that the request may last for as long as the client wants.
func (r *route) isLongRunning(path string) bool {
	if !r.resource {
		return strings.HasPrefix(path, "/debug/pprof/")
	}
	return r.verb == "watch" || isLongRunning(r.sub)
}

// allowsVerb says that the verb exists for the path: collections cannot be updated, nor objects be created by their
// name.
func (r *route) allowsVerb(def *kind.Def) bool {
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

// hasValidNames says that namespace and name are valid path segments: not "." or "..", and without separators and
// control characters.
func (r *route) hasValidNames() bool {
	for _, s := range []string{r.namespace, r.name} {
		if s == "" {
			continue
		}
		if len(content.IsPathSegmentName(s)) > 0 || len(s) > 1024 ||
			strings.ContainsFunc(s, func(c rune) bool { return c < 0x20 || c == 0x7f }) {
			return false
		}
	}
	return true
}
