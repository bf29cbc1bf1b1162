package h2

import (
	"io"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
)

// waitHandler returns a handler that responds when the channel is closed, or returns when its client disconnects.
func waitHandler(open <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-open:
			_, _ = io.WriteString(w, "late")
		case <-r.Context().Done():
		}
	}
}

// TestGoAway checks that a server which shuts down finishes running requests, accepts no further ones, and closes.
func TestGoAway(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]func(*rawClient){
		"nothing":             func(*rawClient) {},
		"a request":           func(p *rawClient) { p.sendRequest(3, "/") },
		"a request and pings": func(p *rawClient) { p.sendRequest(3, "/"); p.expectAlive() },
		"a body":              func(p *rawClient) { p.sendRequestHeader(3, "/"); p.must(p.WriteData(3, true, []byte("x"))) },
		"a window":            func(p *rawClient) { p.sendRequest(3, "/"); p.must(p.WriteWindowUpdate(3, 1)) },
		"a reset":             func(p *rawClient) { p.sendRequest(3, "/"); p.must(p.WriteRSTStream(3, http2.ErrCodeCancel)) },
		"a trailer": func(p *rawClient) {
			p.sendRequestHeader(3, "/")
			p.sendFrame(http2.FrameHeaders, 5, 3, string(p.encodeFields("x", "x")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := make(chan struct{})
			p := dialWithPreface(t, rawConfig(), waitHandler(open))
			p.sendRequest(1, "/")
			p.waitUntil("the handler runs", func() bool { return p.running.Load() == 1 })
			p.server.shutDown()
			p.expectEvent("goaway NO_ERROR")
			later(p)
			p.expectAlive()
			close(open)
			p.expectEvent("answer 1 200")
			p.expectEvent("EOF")
			if got := string(p.bodies[1]); got != "late" {
				t.Errorf("the answer is %q", got)
			}
			p.must(p.socket.Close())
			p.waitClosed()
		})
	}
}

// TestGoAwayWithoutHandlers checks that a server which shuts down closes a connection when the client has reset the
// last request, though no handler ever saw it.
func TestGoAwayWithoutHandlers(t *testing.T) {
	t.Parallel()
	p := dialWithPreface(t, rawConfig(), basicHandler)
	p.sendRequestHeader(1, "/", "content-length", "5")
	p.expectAlive()
	p.server.shutDown()
	p.expectEvent("goaway NO_ERROR")
	p.must(p.WriteRSTStream(1, http2.ErrCodeCancel))
	p.expectEvent("EOF")
}
