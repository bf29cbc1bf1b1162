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

// pipeListener accepts in-memory connections, for tests in virtual time.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipeListener) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipeListener) dial(context.Context, string, string) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case p.conns <- b:
		return a, nil
	case <-p.closed:
		return nil, &dialError{net.ErrClosed}
	}
}

// runInVirtualTime runs a test of a proxy in front of a handler, in virtual time.
func runInVirtualTime(t *testing.T, filters Filters, handler http.HandlerFunc, test func(t *testing.T, dial func() net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		front, back := newPipeListener(), newPipeListener()
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
		test(t, func() net.Conn {
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

// timeUntilClosed waits until the proxy closes the connection, and returns after how long.
func timeUntilClosed(c net.Conn) time.Duration {
	start := time.Now()
	_, _ = io.Copy(io.Discard, c)
	return time.Since(start)
}

func TestSlowClients(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }
	t.Run("header", func(t *testing.T) {
		runInVirtualTime(t, Filters{}, echo, func(t *testing.T, dial func() net.Conn) {
			c := dial()
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ")
			if d := timeUntilClosed(c); d != headerTimeout {
				t.Errorf("a header that does not end may take %s", d)
			}
		})
	})
	t.Run("idle", func(t *testing.T) {
		runInVirtualTime(t, Filters{}, echo, func(t *testing.T, dial func() net.Conn) {
			c := dial()
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if d := timeUntilClosed(c); d != idleTimeout {
				t.Errorf("an idle connection is kept for %s", d)
			}
		})
	})
	t.Run("body", func(t *testing.T) {
		runInVirtualTime(t, Filters{}, echo, func(t *testing.T, dial func() net.Conn) {
			c := dial()
			fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhel")
			time.Sleep(byteTimeout - time.Second)
			fmt.Fprint(c, "lo") // the timeout starts again
			if d := timeUntilClosed(c); d < byteTimeout || d > 2*byteTimeout {
				t.Errorf("a body that stalls may take %s", d)
			}
		})
	})
	t.Run("response", func(t *testing.T) {
		var gaveUp chan time.Duration // a channel of the synctest bubble
		handler := func(w http.ResponseWriter, _ *http.Request) {
			start := time.Now()
			w.Header().Set("Content-Length", "1000000000")
			for {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					gaveUp <- time.Since(start)
					return
				}
			}
		}
		runInVirtualTime(t, Filters{}, handler, func(t *testing.T, dial func() net.Conn) {
			gaveUp = make(chan time.Duration, 1)
			c := dial()
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if d := <-gaveUp; d != byteTimeout {
				t.Errorf("a response that the client does not read may take %s", d)
			}
			c.Close()
		})
	})
}

// TestIdleResponsesStayOpen checks that idle but open responses are not ended.
func TestIdleResponsesStayOpen(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(time.Hour)
		fmt.Fprint(w, "at last")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(time.Hour)
		fmt.Fprint(w, ", the end")
	}
	for _, head := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"} {
		runInVirtualTime(t, Filters{}, handler, func(t *testing.T, dial func() net.Conn) {
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

// TestTimeoutLimitsStartOfResponse checks that the timeout limits the start of a response, and not its duration.
func TestTimeoutLimitsStartOfResponse(t *testing.T) {
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
	runInVirtualTime(t, Filters{Timeout: 10 * time.Second}, handler, func(t *testing.T, dial func() net.Conn) {
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
