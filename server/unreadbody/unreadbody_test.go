package unreadbody

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/server/h2"
)

const web = `{"metadata":{"name":"web"}}`

// serve starts a server whose handler sends the name that it finds in the body of a request, and then the answer. It serves HTTP/1.1 by
// net/http, and HTTP/2 by package h2 or by net/http.
func serve(t *testing.T, protocol string) (server *httptest.Server, names <-chan string) {
	t.Helper()
	reader := Reader{Patience: time.Minute} // the machine may be busy
	found := make(chan string, 10)
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		found <- reader.ObjectName(w, req)
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
	}))
	server.EnableHTTP2 = protocol != "HTTP/1.1"
	if protocol == "HTTP/2" {
		h2.Attach(server.Config, h2.Config{Streams: 10, Header: 1 << 16, Greeting: time.Minute, Idle: time.Minute,
			Log: slog.New(slog.DiscardHandler)})
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, found
}

// TestObjectName sends bodies by each of the HTTP servers; the answer never depends on them.
func TestObjectName(t *testing.T) {
	pad := func(size int) string { return web + strings.Repeat(" ", size-len(web)) }
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2", "HTTP/2 of net/http"} {
		server, names := serve(t, protocol)
		for _, c := range []struct{ what, media, body, want string }{
			{"JSON", "application/json", web, "web"},
			{"JSON with a charset", "application/json; charset=utf-8", web, "web"},
			{"YAML", "application/yaml", "metadata:\n  name: web\n", "web"},
			{"protobuf", "application/vnd.kubernetes.protobuf", "k8s\x00\x12\x07\x0a\x05\x0a\x03web", "web"},
			{"another format", "text/plain", web, ""},
			{"a format that is none", ";", web, ""},
			{"no body", "application/json", "", ""},
			{"garbage", "application/json", "\xff\xfe", ""},
			{"an invalid name", "application/json", `{"metadata":{"name":"a b"}}`, ""},
			{"the largest body", "application/json", pad(MaxSize), "web"},
			{"a larger body", "application/json", pad(MaxSize + 1), ""},
			{"a body of unknown length", "application/json", web, ""},
			{"a client that waits before it sends the body", "application/json", web, ""},
		} {
			if strings.Contains(c.what, "waits") && protocol == "HTTP/2 of net/http" {
				continue // it does not tell handlers that the client waits
			}
			var body io.Reader = strings.NewReader(c.body)
			if strings.Contains(c.what, "unknown length") {
				body = io.MultiReader(body) // net/http does not know how long it is
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", c.media)
			if strings.Contains(c.what, "waits") {
				req.Header.Set("Expect", "100-continue")
			}
			res, err := server.Client().Do(req)
			if err != nil {
				t.Fatalf("%s, %s: %v", protocol, c.what, err)
			}
			text, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || res.StatusCode != http.StatusUnauthorized || string(text) != "Unauthorized\n" {
				t.Errorf("%s, %s: the answer is %d %q, %v", protocol, c.what, res.StatusCode, text, err)
			}
			if got := <-names; got != c.want {
				t.Errorf("%s, %s: %q, want %q", protocol, c.what, got, c.want)
			}
		}
	}
}

// TestSlowBody checks that a body that does not arrive is not waited for, and that the next request of the client is served as any other:
// net/http cancels the context of a connection on which a read has failed, so that no other request may be served on that connection.
func TestSlowBody(t *testing.T) {
	var reader Reader
	began, names := make(chan error, 1), make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		began <- req.Context().Err()
		names <- reader.ObjectName(w, req)
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
	}))
	defer server.Close()
	connect := func() (net.Conn, *bufio.Reader) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn, bufio.NewReader(conn)
	}
	conn, answers := connect()
	header := fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(web))
	for _, c := range []struct{ now, later, want string }{
		{web[:5], web[5:], ""},
		{web, "", "web"},
	} {
		_, _ = io.WriteString(conn, header+c.now)
		if err := <-began; err != nil {
			t.Errorf("the context of a request is done when it begins: %v", err)
		}
		if got := <-names; got != c.want { // nothing more comes before the handler goes on
			t.Errorf("%q, want %q", got, c.want)
		}
		_, _ = io.WriteString(conn, c.later)
		res, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if _ = res.Body.Close(); res.StatusCode != http.StatusUnauthorized {
			t.Error(res.Status)
		}
		if res.Close {
			conn, answers = connect()
		}
	}
}

// stalled is the response writer and the body of a client that sends nothing until the deadline has passed, and then what is left.
type stalled struct {
	httptest.ResponseRecorder
	until time.Time
	left  string
}

func (s *stalled) SetReadDeadline(at time.Time) error {
	s.until = at
	return nil
}

func (s *stalled) Read(p []byte) (int, error) {
	<-time.After(time.Until(s.until))
	if s.left == "" {
		return 0, os.ErrDeadlineExceeded
	}
	n := copy(p, s.left)
	s.left = s.left[n:]
	return n, nil
}

func (*stalled) Close() error { return nil }

// endless is a response writer that has no deadlines.
type endless struct{ http.ResponseWriter }

// TestBounds checks how many bodies are waited for at a time, and for how long.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reader Reader
		request := func(body io.Reader) *http.Request {
			req := httptest.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, "/", body)
			req.ContentLength = int64(len(web))
			return req
		}
		began := time.Now()
		for range maxReaders {
			go func() {
				s := &stalled{}
				if got := reader.ObjectName(s, request(s)); got != "" || !s.until.IsZero() || s.Header().Get("Connection") != "close" {
					t.Errorf("%q, and the deadline is still %v, the header %v", got, s.until, s.Header())
				}
			}()
		}
		synctest.Wait()
		if n := reader.reading.Load(); n != maxReaders {
			t.Errorf("%d bodies are waited for", n)
		}
		if got := reader.ObjectName(&stalled{}, request(bytes.NewReader([]byte(web)))); got != "" {
			t.Errorf("a body is read while others are waited for: %q", got)
		}
		time.Sleep(DefaultPatience)
		synctest.Wait()
		if n, took := reader.reading.Load(), time.Since(began); n != 0 || took != DefaultPatience {
			t.Errorf("%d bodies are waited for after %v", n, took)
		}
		prompt := &stalled{}
		if got := reader.ObjectName(prompt, request(strings.NewReader(web))); got != "web" || prompt.Header().Get("Connection") != "" {
			t.Errorf("the name is %q, the header %v", got, prompt.Header())
		}
		late := &stalled{left: web}
		if got := reader.ObjectName(late, request(late)); got != "web" || late.Header().Get("Connection") != "close" {
			t.Errorf("of a body that came when the deadline passed, the name is %q, the header %v", got, late.Header())
		}
		if got := reader.ObjectName(endless{}, request(strings.NewReader(web))); got != "" {
			t.Errorf("a body is read that could take forever: %q", got)
		}
	})
}
