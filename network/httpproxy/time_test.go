package httpproxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is an in-memory network, for tests in virtual time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case p.conns <- b:
		return a, nil
	case <-p.closed:
		return nil, &dialError{net.ErrClosed}
	}
}

// inMemory runs a proxy in front of a handler, in virtual time.
func inMemory(t *testing.T, filters Filters, handler http.HandlerFunc, play func(t *testing.T, dial func() net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		front, back := newPipes(), newPipes()
		ref := Ref{Namespace: "ns", Service: "web", Protocol: HTTP}
		pool := NewPool(ref)
		tr := newTransport(ref)
		tr.DialContext = back.dial
		pool.live.Store(&[]*endpoint{{addr: "10.0.0.1:80", transport: tr}})
		p := NewProxy(Config{HTTPPort: 80})
		p.Swap(NewTable([]Rule{{Match: Match{Path: "/"}, Backends: []Backend{{Ref: ref, Weight: 1}}, Filters: filters}},
			func(Ref) *Pool { return pool }), nil)
		a, b := p.Server(), &http.Server{Handler: handler}
		var wg sync.WaitGroup
		wg.Go(func() { _ = a.Serve(front) })
		wg.Go(func() { _ = b.Serve(back) })
		play(t, func() net.Conn {
			c, err := front.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			return c
		})
		pool.Set(nil)
		_, _ = a.Close(), b.Close()
		wg.Wait()
	})
}

// ended waits until the proxy closes the connection, and returns after how long.
func ended(c net.Conn) time.Duration {
	start := time.Now()
	_, _ = io.Copy(io.Discard, c)
	return time.Since(start)
}

func TestSlowClients(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }
	t.Run("header", func(t *testing.T) {
		inMemory(t, Filters{}, echo, func(t *testing.T, dial func() net.Conn) {
			c := dial()
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ")
			if d := ended(c); d != headerTimeout {
				t.Errorf("a header that does not end may take %s", d)
			}
		})
	})
	t.Run("idle", func(t *testing.T) {
		inMemory(t, Filters{}, echo, func(t *testing.T, dial func() net.Conn) {
			c := dial()
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if d := ended(c); d != idleTimeout {
				t.Errorf("a connection that nobody uses is kept for %s", d)
			}
		})
	})
	t.Run("body", func(t *testing.T) {
		inMemory(t, Filters{}, echo, func(t *testing.T, dial func() net.Conn) {
			c := dial()
			fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhel")
			time.Sleep(byteTimeout - time.Second)
			fmt.Fprint(c, "lo") // begins anew
			if d := ended(c); d < byteTimeout || d > 2*byteTimeout {
				t.Errorf("a body that does not go on may take %s", d)
			}
		})
	})
	t.Run("answer", func(t *testing.T) {
		var gave chan time.Duration // made inside the test's own time
		handler := func(w http.ResponseWriter, _ *http.Request) {
			start := time.Now()
			w.Header().Set("Content-Length", "1000000000")
			for {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					gave <- time.Since(start)
					return
				}
			}
		}
		inMemory(t, Filters{}, handler, func(t *testing.T, dial func() net.Conn) {
			gave = make(chan time.Duration, 1)
			c := dial()
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if d := <-gave; d != byteTimeout {
				t.Errorf("an answer that nobody takes may take %s", d)
			}
			c.Close()
		})
	})
}

// TestQuietAnswers checks that idle but open responses are not ended.
func TestQuietAnswers(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(time.Hour)
		fmt.Fprint(w, "at last")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(time.Hour)
		fmt.Fprint(w, ", the end")
	}
	for _, head := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"} {
		inMemory(t, Filters{}, handler, func(t *testing.T, dial func() net.Conn) {
			c := dial()
			fmt.Fprint(c, head)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); string(body) != "at last, the end" || err != nil {
				t.Errorf("%q %v", body, err)
			}
			c.Close()
		})
	}
}

// TestTimeout checks that the timeout limits the start of a response, and not its duration.
func TestTimeout(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		d, _ := time.ParseDuration(strings.TrimPrefix(r.URL.Path, "/"))
		select {
		case <-time.After(d):
		case <-r.Context().Done():
			return
		}
		fmt.Fprint(w, "begin")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(time.Minute)
	}
	inMemory(t, Filters{Timeout: 10 * time.Second}, handler, func(t *testing.T, dial func() net.Conn) {
		for path, want := range map[string]int{"9s": 200, "11s": 504} {
			c := dial()
			start := time.Now()
			fmt.Fprintf(c, "GET /%s HTTP/1.1\r\nHost: a\r\n\r\n", path)
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(io.Discard, resp.Body)
			if took := time.Since(start); resp.StatusCode != want || err != nil || want == 504 && took != 10*time.Second {
				t.Errorf("%s: %d after %s, %v", path, resp.StatusCode, took, err)
			}
			c.Close()
		}
	})
}
