package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestBodyAfterDeadline checks that after a body that did not arrive before the deadline of its request, the next request of the client is
// served as any other: net/http cancels the context of a connection on which a read has failed, so that no other request may be served on
// that connection.
func TestBodyAfterDeadline(t *testing.T) {
	const whole = "a whole body"
	began, bodies := make(chan error, 1), make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		began <- req.Context().Err()
		after := time.Hour
		if req.URL.Path == "/late" {
			after = -time.Hour // what is buffered can still be read
		}
		ctx, cancel := context.WithDeadline(req.Context(), time.Now().Add(after))
		defer cancel()
		body, err := readBody(ctx, w, req)
		bodies <- string(body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
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
	for _, c := range []struct {
		path, now, later string
		code             int
		closes           bool
	}{
		{"/", whole, "", http.StatusOK, false},
		{"/late", whole[:5], whole[5:], http.StatusBadRequest, true},
		{"/", whole, "", http.StatusOK, false},
	} {
		_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", c.path, len(whole), c.now)
		if err := <-began; err != nil {
			t.Errorf("%+v: the context of the request is done when it begins: %v", c, err)
		}
		if body := <-bodies; body != c.now { // nothing more comes before the handler goes on
			t.Errorf("%+v: the body is %q", c, body)
		}
		_, _ = io.WriteString(conn, c.later)
		res, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if _ = res.Body.Close(); res.StatusCode != c.code || res.Close != c.closes {
			t.Errorf("%+v: the answer is %d, and the connection is closed: %t", c, res.StatusCode, res.Close)
		}
		if res.Close {
			conn, answers = connect()
		}
	}
}
