package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/kinds/stream"
)

// How long an answer is remembered.
const (
	allowedFor = 5 * time.Minute
	refusedFor = 30 * time.Second
)

// permissions asks the API server what somebody may do with this node.
type permissions struct {
	client client.Writer
	node   string
	known  *memory[string, bool]
}

func newPermissions(c client.Writer, node string) *permissions {
	return &permissions{client: c, node: node, known: newMemory[string, bool](1024)}
}

// ask returns 0 when a request is allowed, else how it is refused. One of several subresources is enough.
func (p *permissions) ask(r *http.Request, who Identity) (code int, text string) {
	verb := verbOf(r)
	subs := subresources(r.URL.Path)
	for _, sub := range subs {
		ok, err := p.allowed(r, who, verb, sub)
		if err != nil {
			return http.StatusInternalServerError, fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=%s, subresource=%s)", who.Username, verb, "nodes", sub)
		}
		if ok {
			return 0, ""
		}
	}
	return http.StatusForbidden, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=%s, subresource(s)=%v)\n", who.Username, verb, "nodes", subs)
}

// isClean reports whether the path of a request is written in the one way that its handler and its permission are both looked up by.
// An encoded slash separates nothing for the router, but everything for whoever reads the decoded path.
func isClean(u *url.URL) bool {
	clean, ok := stream.CleanPath(u.Path)
	return ok && clean == u.Path && !strings.Contains(strings.ToLower(u.EscapedPath()), "%2f")
}

// verbOf is the verb of a request with a clean path. A stream into a container is never harmless, even where it begins as a GET.
func verbOf(r *http.Request) string {
	if stream.RunsInContainer(r.URL.Path) {
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

// subresources are those of the node any of which opens a clean path: the narrow one first, then what it was a part of once.
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

func (p *permissions) allowed(r *http.Request, who Identity, verb, sub string) (bool, error) {
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
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: "nodes", Subresource: sub, Name: p.node},
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
	until := time.Now().Add(refusedFor)
	if ok {
		until = time.Now().Add(allowedFor)
	}
	p.known.put(key, ok, until)
	return ok, nil
}
