package httpapi

import (
	"net/http"
	"net/url"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/server/apistatus"
	"proa.dev/server/authz"
)

// impersonate returns the user that the headers of a request name, if the authenticated user may act as that one, and
// removes the headers.
func (s *Handler) impersonate(req *http.Request, who user.Info) (user.Info, error) {
	h := req.Header
	name, groups, uid := h.Get(authenticationv1.ImpersonateUserHeader), h[authenticationv1.ImpersonateGroupHeader],
		h.Get(authenticationv1.ImpersonateUIDHeader)
	extra := map[string][]string{}
	for key, values := range h {
		if rest, ok := strings.CutPrefix(key, authenticationv1.ImpersonateUserExtraHeaderPrefix); ok && rest != "" {
			if k, err := url.PathUnescape(strings.ToLower(rest)); err == nil {
				extra[k] = append(extra[k], values...)
			}
		}
	}
	if name == "" {
		if len(groups) > 0 || len(extra) > 0 || uid != "" {
			asked := &user.DefaultInfo{UID: uid, Groups: groups}
			if len(extra) > 0 {
				asked.Extra = extra
			}
			return nil, apistatus.BadRequest("requested %#v without impersonating a user name", asked)
		}
		return who, nil
	}
	out := &user.DefaultInfo{Name: name, Groups: groups, UID: uid}
	authorize := func(a authz.Attributes) error {
		a.User, a.Verb, a.IsResource = who, "impersonate", true
		return s.Server.AuthorizeAttributes(req.Context(), &a, nil)
	}
	namespace, account, err := serviceaccount.SplitUsername(name)
	isAccount := err == nil
	question := authz.Attributes{Version: "v1", Resource: "users", Name: name}
	if isAccount {
		question = authz.Attributes{Version: "v1", Resource: "serviceaccounts", Namespace: namespace, Name: account}
		if len(groups) == 0 {
			out.Groups = serviceaccount.MakeGroupNames(namespace)
		}
	}
	questions := []authz.Attributes{question}
	for _, g := range groups {
		questions = append(questions, authz.Attributes{Version: "v1", Resource: "groups", Name: g})
	}
	for key, values := range extra {
		for _, v := range values {
			questions = append(questions, authz.Attributes{Group: "authentication.k8s.io", Version: "v1", Resource: "userextras",
				Subresource: key, Name: v})
		}
	}
	if uid != "" {
		questions = append(questions, authz.Attributes{Group: "authentication.k8s.io", Version: "v1", Resource: "uids", Name: uid})
	}
	for _, q := range questions {
		if err := authorize(q); err != nil {
			return nil, err
		}
	}
	if len(extra) > 0 {
		out.Extra = extra
	}
	out.Groups = addAuthenticatedGroup(out.Name, out.Groups)
	for key := range h {
		if strings.HasPrefix(key, "Impersonate-") {
			h.Del(key)
		}
	}
	return out, nil
}

// addAuthenticatedGroup adds the group system:authenticated, or system:unauthenticated for the anonymous user.
func addAuthenticatedGroup(name string, groups []string) []string {
	add := user.AllAuthenticated
	if name == user.Anonymous {
		add = user.AllUnauthenticated
	}
	for _, g := range groups {
		if g == add || g == user.AllUnauthenticated {
			return groups
		}
	}
	return append(groups[:len(groups):len(groups)], add)
}
