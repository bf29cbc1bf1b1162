package attack

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"proa.dev/test/upstream"
)

// Answer is what both servers say to something that is not an attack on their resources, but that they should refuse.
type Answer struct {
	Name     string
	Own, Std string
	// Strict are answers that are as good as that of net/http.
	Strict []string
}

// Same tells whether the own server answers as net/http does, or as strictly.
func (a Answer) Same() bool { return a.Own == a.Std || slices.Contains(a.Strict, a.Own) }

// Cells are the columns of the table of answers.
func (a Answer) Cells() []string {
	verdict := "same"
	switch {
	case !a.Same():
		verdict = "differs"
	case a.Own != a.Std:
		verdict = "own is stricter"
	}
	return []string{a.Name, a.Own, a.Std, verdict}
}

// question is something a client does, and the answer it gets.
type question struct {
	name   string
	strict []string
	ask    func(context.Context, *Target) string
}

// questions returns the rows of the table of answers.
func questions() []question {
	cbc := []uint16{
		tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA,
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA,
	}
	refusedTLS := []string{"TLS refused"}
	malformed := []string{"reset PROTOCOL_ERROR"} // as RFC 9113 asks for
	return []question{
		{"HTTP/2 over TLS 1.2 with CBC suites only", append(refusedTLS, "GOAWAY INADEQUATE_SECURITY"),
			overTLS(&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: cbc, NextProtos: []string{"h2"}})},
		{"HTTP/1.1 over TLS 1.2 with CBC suites only", refusedTLS,
			overTLS(&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: cbc, NextProtos: []string{"http/1.1"}})},
		{"TLS 1.1", refusedTLS, overTLS(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11,
			NextProtos: []string{"h2"}})},
		{"a body shorter than its content-length", malformed, withFrames(func(f *http2.Framer) error {
			return errors.Join(requestFrame(f, "POST", false, "content-length", "100"), f.WriteData(1, true, []byte("short")))
		})},
		{"a body longer than its content-length", malformed, withFrames(func(f *http2.Framer) error {
			return errors.Join(requestFrame(f, "POST", false, "content-length", "5"), f.WriteData(1, true, []byte("longer than that")))
		})},
		{"a request with the field connection: close", malformed, withFrames(func(f *http2.Framer) error {
			return requestFrame(f, "GET", true, "connection", "close")
		})},
		{"a request with transfer-encoding: chunked", malformed, withFrames(func(f *http2.Framer) error {
			return requestFrame(f, "GET", true, "transfer-encoding", "chunked")
		})},
		{"two content-lengths that differ", malformed, withFrames(func(f *http2.Framer) error {
			return requestFrame(f, "POST", false, "content-length", "5", "content-length", "6")
		})},
		{"a field name in upper case", malformed,
			withFrames(func(f *http2.Framer) error { return requestFrame(f, "GET", true, "X-Upper", "1") })},
		{"a line break in a value", malformed,
			withFrames(func(f *http2.Framer) error { return requestFrame(f, "GET", true, "x-a", "1\r\nx-b: 2") })},
		{"a header list of 2 MiB", []string{"status 431"}, withFrames(hugeList)},
	}
}

// answers asks both servers all questions.
func (o Options) answers(ctx context.Context) ([]Answer, error) {
	var out []Answer
	for _, q := range questions() {
		if o.Only == nil || o.Only.MatchString(q.name) {
			out = append(out, Answer{Name: q.name, Strict: q.strict})
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	for _, server := range []string{own, std} {
		s, err := upstream.StartProa(ctx, o.Binary, "--http2="+server)
		if err != nil {
			return nil, err
		}
		target, err := prepare(ctx, s, false)
		if err != nil {
			s.Stop()
			return nil, err
		}
		for i := range out {
			at := slices.IndexFunc(questions(), func(q question) bool { return q.name == out[i].Name })
			answer := questions()[at].ask(ctx, target)
			if server == own {
				out[i].Own = answer
			} else {
				out[i].Std = answer
			}
		}
		s.Stop()
	}
	return out, nil
}

// askLimit is how long an answer may take.
const askLimit = 5 * time.Second

// overTLS asks for the version over a connection with the given TLS settings.
func overTLS(config *tls.Config) func(context.Context, *Target) string {
	return func(ctx context.Context, t *Target) string {
		socket, err := t.secure(ctx, config)
		if err != nil {
			return "TLS refused"
		}
		defer socket.Close()
		if socket.ConnectionState().NegotiatedProtocol == "h2" {
			return exchange(socket, func(f *http2.Framer) error { return requestFrame(f, "GET", true) })
		}
		if _, err := fmt.Fprint(socket, "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			return "closed"
		}
		resp, err := http.ReadResponse(bufio.NewReader(socket), nil)
		if err != nil {
			return "closed"
		}
		_ = resp.Body.Close()
		return fmt.Sprint("status ", resp.StatusCode)
	}
}

// withFrames sends frames on a connection of HTTP/2 and returns the first answer.
func withFrames(send func(*http2.Framer) error) func(context.Context, *Target) string {
	return func(ctx context.Context, t *Target) string {
		socket, err := t.secure(ctx, &tls.Config{NextProtos: []string{"h2"}})
		if err != nil {
			return "TLS refused"
		}
		defer socket.Close()
		return exchange(socket, send)
	}
}

// secure opens a TLS connection to the server.
func (t *Target) secure(ctx context.Context, config *tls.Config) (*tls.Conn, error) {
	config = config.Clone()
	config.RootCAs, config.ServerName = t.Authority, t.host()
	socket, err := (&tls.Dialer{NetDialer: &net.Dialer{Timeout: askLimit}, Config: config}).DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return nil, err
	}
	_ = socket.SetDeadline(time.Now().Add(askLimit))
	return socket.(*tls.Conn), nil
}

// exchange greets, sends frames, and returns the first thing that tells what the server makes of them.
func exchange(socket *tls.Conn, send func(*http2.Framer) error) string {
	f := http2.NewFramer(socket, socket)
	f.AllowIllegalWrites = true
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err := socket.Write([]byte(http2.ClientPreface))
	_ = errors.Join(err, f.WriteSettings(), send(f)) // a server that has closed the connection may have said why
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return "closed"
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			return "status " + frame.PseudoValue("status")
		case *http2.RSTStreamFrame:
			return "reset " + frame.ErrCode.String()
		case *http2.GoAwayFrame:
			return "GOAWAY " + frame.ErrCode.String()
		}
	}
}

// requestFrame sends the head of a request on stream 1.
func requestFrame(f *http2.Framer, method string, end bool, more ...string) error {
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: fieldBlock(method, "/version", more...), EndStream: end,
		EndHeaders: true})
}

// hugeList sends a request with twice the header list that a server takes.
func hugeList(f *http2.Framer) error {
	block := repeated("x-huge", "1", 2*headerLimit)
	const size = 16 << 10
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:size], EndStream: true})
	for rest := block[size:]; len(rest) > 0 && err == nil; {
		piece := rest[:min(size, len(rest))]
		rest = rest[len(piece):]
		err = f.WriteContinuation(1, len(rest) == 0, piece)
	}
	return err
}
