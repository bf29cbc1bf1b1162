package server

import (
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
)

// markLasting tells the HTTP/2 server that the client of a stream, such as a log that is followed, may pause for as long as it likes.
func markLasting(w http.ResponseWriter) {
	if l, ok := w.(interface{ Lasting() }); ok {
		l.Lasting()
	}
}

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
