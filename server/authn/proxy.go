package authn

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
)

// The headers with which a front proxy names the user.
const (
	headerUser        = "X-Remote-User"
	headerUID         = "X-Remote-Uid"
	headerGroup       = "X-Remote-Group"
	headerExtraPrefix = "X-Remote-Extra-"
)

// FrontProxyHeaders are the header names as they are published for aggregated API servers.
type FrontProxyHeaders struct {
	User, UID, Group, ExtraPrefix string
}

// Headers returns the front-proxy headers that this hop understands.
func Headers() FrontProxyHeaders {
	return FrontProxyHeaders{User: headerUser, UID: headerUID, Group: headerGroup, ExtraPrefix: headerExtraPrefix}
}

// frontProxyUser reads the identity from the headers of a trusted front proxy.
func frontProxyUser(name string, h http.Header) user.Info {
	u := &user.DefaultInfo{Name: name, UID: h.Get(headerUID), Groups: []string{}, Extra: map[string][]string{}}
	for _, g := range h[headerGroup] {
		if g != "" {
			u.Groups = append(u.Groups, g)
		}
	}
	for key, values := range h {
		if !isExtra(key) {
			continue
		}
		name := strings.ToLower(key[len(headerExtraPrefix):])
		// Keys are percent-encoded because header names allow few characters. One that is not is taken literally.
		if plain, err := url.PathUnescape(name); err == nil {
			name = plain
		}
		u.Extra[name] = append(u.Extra[name], values...)
	}
	return withAuthenticatedGroup(u)
}

// stripFrontProxy removes the headers, whoever sent them: later hops would take them for verified.
func stripFrontProxy(h http.Header) {
	for key := range h {
		if len(key) < len(headerUID) || !strings.EqualFold(key[:len("X-Remote-")], "X-Remote-") {
			continue
		}
		if isExtra(key) || strings.EqualFold(key, headerUser) || strings.EqualFold(key, headerUID) || strings.EqualFold(key, headerGroup) {
			delete(h, key)
		}
	}
}

func isExtra(key string) bool {
	return len(key) >= len(headerExtraPrefix) && strings.EqualFold(key[:len(headerExtraPrefix)], headerExtraPrefix)
}
