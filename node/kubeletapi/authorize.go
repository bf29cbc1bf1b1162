package kubeletapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
	"proa.dev/kinds/lib/streamoptions"
)

// How long decisions are cached.
const (
	allowCacheTime = 5 * time.Minute
	denyCacheTime  = 30 * time.Second
)

// authorizer asks the API server, by SubjectAccessReviews, what a user may do with this node.
type authorizer struct {
	client client.Writer
	node   string
	known  *cache[string, bool]
}

func newAuthorizer(c client.Writer, node string) *authorizer {
	return &authorizer{client: c, node: node, known: newCache[string, bool](1024)}
}

// authorize returns 0 if a request is allowed, otherwise the status code and text of its rejection. Access to one of several
// subresources is enough.
func (p *authorizer) authorize(r *http.Request, who Identity) (code int, text string) {
	verb := verbOf(r)
	subs := subresources(r.URL.Path)
	for _, sub := range subs {
		ok, err := p.allowed(r, who, verb, sub)
		if err != nil {
			return http.StatusInternalServerError, fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=%s, subresource=%s)",
				who.Username, verb, "nodes", sub)
		}
		if ok {
			return 0, ""
		}
	}
	return http.StatusForbidden, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=%s, subresource(s)=%v)\n", who.Username, verb, "nodes",
		subs)
}

// isClean reports whether the path of a request is in the canonical form, by which both its handler and its permission
// are looked up. The router does not treat an encoded slash as a separator, but code that reads the decoded path does.
func isClean(u *url.URL) bool {
	clean, ok := streamoptions.CleanPath(u.Path)
	return ok && clean == u.Path && !strings.Contains(strings.ToLower(u.EscapedPath()), "%2f")
}

// verbOf returns the verb of a request with a clean path. A stream into a container always needs create, even if it
// begins as a GET.
func verbOf(r *http.Request) string {
	if streamoptions.RunsInContainer(r.URL.Path) {
		return "create"
	}
	switch r.Method {
	case http.MethodPost:
		return "create"
	case http.MethodGet:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

// subresources returns the subresources of the node, any of which gives access to a clean path: the specific one first,
// then the older one that included it.
func subresources(path string) []string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "pods", "runningpods", "allocatedPods":
		return []string{"pods", "proxy"}
	case "healthz", "configz":
		return []string{first, "proxy"}
	case "stats", "metrics", "checkpoint", "statusz":
		return []string{first}
	case "logs":
		return []string{"log"}
	case "flagz":
		return []string{"configz"}
	}
	return []string{"proxy"}
}

func (p *authorizer) allowed(r *http.Request, who Identity, verb, sub string) (bool, error) {
	raw, err := json.Marshal(who)
	if err != nil {
		return false, err
	}
	key := verb + " " + sub + " " + string(raw)
	if ok, found := p.known.get(key, time.Now()); found {
		return ok, nil
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: who.Username, UID: who.UID, Groups: who.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: "nodes", Subresource: sub,
			Name: p.node},
	}}
	if len(who.Extra) > 0 {
		review.Spec.Extra = map[string]authorizationv1.ExtraValue{}
		for k, v := range who.Extra {
			review.Spec.Extra[k] = authorizationv1.ExtraValue(v)
		}
	}
	out, err := p.client.Create(r.Context(), gr.SubjectAccessReviews, review)
	if err != nil {
		return false, fmt.Errorf("ask what %s may do: %w", who.Username, err)
	}
	ok := out.(*authorizationv1.SubjectAccessReview).Status.Allowed
	until := time.Now().Add(denyCacheTime)
	if ok {
		until = time.Now().Add(allowCacheTime)
	}
	p.known.put(key, ok, until)
	return ok, nil
}
