package h2

import (
	"io"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
)

// gate is a handler that responds when the test says so.
func gate(open <-chan struct{}) http.HandlerFunc {
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
	for name, later := range map[string]func(*peer){
		"nothing":             func(*peer) {},
		"a request":           func(p *peer) { p.ask(3, "/") },
		"a request and pings": func(p *peer) { p.ask(3, "/"); p.alive() },
		"a body":              func(p *peer) { p.offer(3, "/"); p.must(p.WriteData(3, true, []byte("x"))) },
		"a window":            func(p *peer) { p.ask(3, "/"); p.must(p.WriteWindowUpdate(3, 1)) },
		"a reset":             func(p *peer) { p.ask(3, "/"); p.must(p.WriteRSTStream(3, http2.ErrCodeCancel)) },
		"a trailer": func(p *peer) {
			p.offer(3, "/")
			p.raw(http2.FrameHeaders, 5, 3, string(p.fields("x", "x")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := make(chan struct{})
			p := dialed(t, rawConfig(), gate(open))
			p.ask(1, "/")
			p.until("the handler runs", func() bool { return p.running.Load() == 1 })
			p.server.shutDown()
			p.see("goaway NO_ERROR")
			later(p)
			p.alive()
			close(open)
			p.see("answer 1 200")
			p.see("EOF")
			if got := string(p.bodies[1]); got != "late" {
				t.Errorf("the answer is %q", got)
			}
			p.must(p.socket.Close())
			p.gone()
		})
	}
}

// TestGoAwayWithoutHandlers checks that a server which shuts down closes a connection when the client has reset the
// last request, though no handler ever saw it.
func TestGoAwayWithoutHandlers(t *testing.T) {
	t.Parallel()
	p := dialed(t, rawConfig(), plain)
	p.offer(1, "/", "content-length", "5")
	p.alive()
	p.server.shutDown()
	p.see("goaway NO_ERROR")
	p.must(p.WriteRSTStream(1, http2.ErrCodeCancel))
	p.see("EOF")
}
