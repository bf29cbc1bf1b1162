package responsewriter

import (
	"context"
	"net"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/internal/connlimit"
)

// MarkStreaming tells the HTTP/2 server that the client of a stream, such as a log that is followed, may stop reading
// for as long as it likes.
func MarkStreaming(w http.ResponseWriter) {
	if l, ok := w.(interface{ Lasting() }); ok {
		l.Lasting()
	}
}

// MarkAuthenticated records that a request has been authenticated: from now on its connection counts among those of its
// user, and may hold more memory over HTTP/2. It is not among those that are closed first when unauthenticated clients
// hold too much. Anonymous users count as unauthenticated.
func MarkAuthenticated(w http.ResponseWriter, req *http.Request, who user.Info) {
	if who.GetName() == user.Anonymous {
		return
	}
	connlimit.FromContext(req.Context()).Authenticate(who.GetName(), who.GetGroups())
	if a, ok := w.(interface{ Authenticated() }); ok {
		a.Authenticated()
	}
}

// socketKey is the key of the context value that is the socket of a connection.
type socketKey struct{}

// WithSocket is the ConnContext of an http.Server that serves the API. By the socket an answer over HTTP/1.1 can tell
// whether a write waits for the client, and MarkAuthenticated finds where the connection counts.
func WithSocket(ctx context.Context, socket net.Conn) context.Context {
	return context.WithValue(connlimit.WithConn(ctx, socket), socketKey{}, socket)
}

// SocketOf returns the socket of a request over HTTP/1.1; nil for HTTP/2, whose requests share one.
func SocketOf(req *http.Request) net.Conn {
	if req.ProtoMajor != 1 {
		return nil
	}
	socket, _ := req.Context().Value(socketKey{}).(net.Conn)
	return socket
}
