package server

import (
	"context"
	"net"
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

// socketKey is where the context of a connection has its socket.
type socketKey struct{}

// WithSocket is the ConnContext of an http.Server that serves the API: an answer of HTTP/1.1 finds its socket there, and can tell whether a write
// waits for the client.
func WithSocket(ctx context.Context, socket net.Conn) context.Context {
	return context.WithValue(ctx, socketKey{}, socket)
}

// socketOf is the socket of a request, if that has it for itself: one of HTTP/1.1.
func socketOf(req *http.Request) net.Conn {
	if req.ProtoMajor != 1 {
		return nil
	}
	socket, _ := req.Context().Value(socketKey{}).(net.Conn)
	return socket
}
