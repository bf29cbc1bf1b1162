package responsewriter

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestHTTP1RequestHasSocket checks that a request over HTTP/1.1 has the socket of its connection, by which a write that waits for the
// client is noticed.
func TestHTTP1RequestHasSocket(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		got := make(chan net.Conn, 1)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { got <- SocketOf(req) }))
		s.Config.ConnContext, s.EnableHTTP2 = WithSocket, h2
		s.StartTLS()
		defer s.Close()
		res, err := s.Client().Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		socket := <-got
		if h2 != (socket == nil) {
			t.Errorf("HTTP/2 %v: the socket is %v", h2, socket)
		}
		if out := (&Writer{ResponseWriter: httptest.NewRecorder(), Socket: socket}); out.stalledByClient() != h2 {
			t.Errorf("HTTP/2 %v: the client stalls: %v", h2, !h2)
		}
	}
}
