package server

import (
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
)

// markAuthenticated tells the HTTP/2 server that a request has been authenticated: its connection may hold more memory from now on, and is not
// among those that are closed first when strangers hold too much. Anonymous users are strangers.
func markAuthenticated(w http.ResponseWriter, who user.Info) {
	if who.GetName() == user.Anonymous {
		return
	}
	if a, ok := w.(interface{ Authenticated() }); ok {
		a.Authenticated()
	}
}
