package h2

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// implementations returns the HTTP/2 server of this package and the one of net/http. Both have to pass the same tests.
func implementations() map[string]func(*http.Server) {
	return map[string]func(*http.Server){
		"ours": func(s *http.Server) {
			Attach(s, Config{Streams: 250, Header: 1 << 20, Greeting: 10 * time.Second, Idle: time.Minute,
				Log: slog.New(slog.DiscardHandler)})
		},
		"net/http": func(s *http.Server) {
			s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 250, MaxReadFrameSize: 16 << 10,
				MaxReceiveBufferPerConnection: ConnectionWindow(250), MaxReceiveBufferPerStream: StreamWindow}
		},
	}
}

// testServer is a server with an HTTP/2 client of it.
type testServer struct {
	*testing.T
	*http.Client
	server *http.Server
	base   string
}

func newTestServer(t *testing.T, attach func(*http.Server), h http.Handler) *testServer {
	t.Helper()
	certSource := httptest.NewTLSServer(nil) // only its certificate is used
	certSource.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, TLSConfig: &tls.Config{Certificates: certSource.TLS.Certificates}, ErrorLog: log.New(io.Discard, "", 0),
		MaxHeaderBytes: 1 << 20}
	attach(s)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.ServeTLS(l, "", "") }()
	tr := certSource.Client().Transport.(*http.Transport).Clone()
	tr.ForceAttemptHTTP2, tr.ExpectContinueTimeout = true, time.Minute
	t.Cleanup(func() { tr.CloseIdleConnections(); _ = s.Close(); <-done })
	return &testServer{t, &http.Client{Transport: tr,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, s, "https://" + l.Addr().String()}
}

// describeResponse returns a response as text, without its date.
func describeResponse(res *http.Response, err error) string {
	if err != nil {
		return "no answer"
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s length=%d\n", res.Proto, res.Status, res.ContentLength)
	for _, h := range []http.Header{res.Header, res.Trailer} {
		for _, key := range slices.Sorted(func(yield func(string) bool) {
			for k := range h {
				if !yield(k) {
					return
				}
			}
		}) {
			if key == "Date" {
				if _, err := http.ParseTime(h.Get(key)); err != nil {
					fmt.Fprintln(&b, "an invalid date:", h[key])
				}
				continue
			}
			fmt.Fprintln(&b, key, h[key])
		}
		b.WriteString("--\n")
	}
	if len(body) > 200 {
		fmt.Fprintf(&b, "%d bytes of %q", len(body), slices.Compact(slices.Sorted(slices.Values(body))))
	} else {
		fmt.Fprintf(&b, "%q", body)
	}
	if err != nil {
		b.WriteString(", cut off")
	}
	return b.String()
}

// handlersByPath are handlers whose responses must look the same to a client with both servers.
var handlersByPath = map[string]http.HandlerFunc{
	"/nothing": func(http.ResponseWriter, *http.Request) {},
	"/small":   func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") },
	"/exact": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/x")
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "hello")
	},
	"/exact-in-pieces": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		fmt.Fprint(w, "he")
		fmt.Fprint(w, "llo")
	},
	"/exact-none": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusAccepted)
	},
	"/no-length": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "many")
		fmt.Fprint(w, "hello")
	},
	"/flushed": func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "hel")
		w.(http.Flusher).Flush()
		fmt.Fprint(w, "lo")
	},
	"/flushed-empty": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", "1")
		w.(http.Flusher).Flush()
		w.Header().Set("X", "too late")
	},
	"/large": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte("x"), 3<<20)) },
	"/large-exact": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(3<<20))
		w.Header().Set("Content-Type", "text/x")
		_, _ = w.Write(bytes.Repeat([]byte("x"), 3<<20))
	},
	"/many-pieces": func(w http.ResponseWriter, _ *http.Request) {
		for range 3000 {
			_, _ = w.Write(bytes.Repeat([]byte("y"), 1000))
		}
	},
	"/none":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	"/as-known": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) },
	"/no-body": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
			panic(err)
		}
	},
	"/error":    func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) },
	"/redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/small", http.StatusFound) },
	"/html":     func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
	"/encoded": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		fmt.Fprint(w, "<html>")
	},
	"/untyped": func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		fmt.Fprint(w, "<html>")
	},
	"/values": func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["X-Many"] = []string{"a", "b", "c"}
		w.Header().Set("Connection", "close")
		w.Header().Set("Bad Name", "x")
		w.Header().Set("X-Bad", "a\nb")
		w.Header().Set("X-Empty", "")
	},
	"/changed-after": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", "1")
		w.WriteHeader(http.StatusOK)
		w.Header().Set("X", "2")
		w.Header().Set("Y", "2")
		fmt.Fprint(w, "body")
	},
	"/twice": func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		w.WriteHeader(http.StatusOK)
	},
	"/early": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "x")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		fmt.Fprint(w, "later")
	},
	"/trailer": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-End, X-Never")
		w.Header().Set("Content-Type", "text/x")
		fmt.Fprint(w, "body")
		w.Header().Set("X-End", "1")
	},
	"/trailer-exact": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-End")
		w.Header().Set("Content-Type", "text/x")
		w.Header().Set("Content-Length", "4")
		fmt.Fprint(w, "body")
		w.Header().Set("X-End", "1")
	},
	"/trailer-late": func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "body")
		w.(http.Flusher).Flush()
		w.Header().Set(http.TrailerPrefix+"X-Late", "1")
	},
	"/trailer-no-body": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-End")
		w.WriteHeader(http.StatusOK)
		w.Header().Set("X-End", "1")
	},
	"/abort": func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "x")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	},
	"/panic": func(http.ResponseWriter, *http.Request) { panic("no") },
	"/request": func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		r.Header.Del("User-Agent")
		fmt.Fprintln(w, r.Method, r.URL, r.RequestURI, r.Proto, r.ProtoMajor, r.ContentLength, host, r.TLS != nil &&
			r.TLS.HandshakeComplete)
		fmt.Fprintln(w, strings.Split(r.Host, ":")[0], r.Header, r.Trailer)
	},
	"/echo": func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) },
	"/count": func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		again, errAgain := r.Body.Read(make([]byte, 1))
		fmt.Fprintln(w, n, err, again, errAgain, r.ContentLength, r.Trailer)
	},
	"/unread": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "not read") },
	"/closed": func(w http.ResponseWriter, r *http.Request) {
		_ = r.Body.Close()
		_, err := r.Body.Read(make([]byte, 1))
		fmt.Fprint(w, err != nil)
	},
	"/deadline": func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			panic(err)
		}
		_, err := io.ReadAll(r.Body)
		fmt.Fprint(w, errors.Is(err, os.ErrDeadlineExceeded))
	},
	"/write-deadline": func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush() // the response begins before the deadline, however busy the machine is
		c := http.NewResponseController(w)
		if err := c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			panic(err)
		}
		for r.Context().Err() == nil {
			fmt.Fprint(w, strings.Repeat("x", 1000))
			w.(http.Flusher).Flush()
		}
	},
}

// TestSameResponsesAsNetHTTP checks that the responses of every handler look the same to a client with both servers.
func TestSameResponsesAsNetHTTP(t *testing.T) {
	responses := map[string]map[string]string{}
	for name, attach := range implementations() {
		responses[name] = map[string]string{}
		mux := http.NewServeMux()
		for path, h := range handlersByPath {
			mux.Handle(path, h)
		}
		s := newTestServer(t, attach, mux)
		record := func(what string, req *http.Request) {
			t.Helper()
			if req.GetBody == nil && req.Body != nil {
				req.ContentLength = max(req.ContentLength, -1)
			}
			responses[name][what] = describeResponse(s.Do(req))
		}
		for path := range handlersByPath {
			if path == "/deadline" || path == "/write-deadline" {
				continue
			}
			for _, method := range []string{"GET", "HEAD", "POST"} {
				req, err := http.NewRequestWithContext(t.Context(), method, s.base+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				record(method+" "+path, req)
			}
		}
		for what, req := range sampleRequests(t, s.base) {
			record(what, req)
		}
	}
	for what, want := range responses["net/http"] {
		if got := responses["ours"][what]; got != want {
			t.Errorf("%s: a client sees\n%s\nwith net/http it saw\n%s", what, got, want)
		}
	}
	if len(responses["ours"]) != len(responses["net/http"]) || len(responses["ours"]) < 100 {
		t.Errorf("%d and %d answers", len(responses["ours"]), len(responses["net/http"]))
	}
}

// chunkedBody is a request body of unknown length that is read in pieces.
type chunkedBody struct {
	pieces int
	size   int
}

func (s *chunkedBody) Read(p []byte) (int, error) {
	if s.pieces == 0 {
		return 0, io.EOF
	}
	s.pieces--
	return copy(p, bytes.Repeat([]byte("z"), s.size)), nil
}

// sampleRequests returns requests with many kinds of bodies and header fields.
func sampleRequests(t *testing.T, base string) map[string]*http.Request {
	t.Helper()
	all := map[string]*http.Request{}
	add := func(what, method, path string, body io.Reader, fields ...string) *http.Request {
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, body)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(fields); i += 2 {
			req.Header.Add(fields[i], fields[i+1])
		}
		all[what] = req
		return req
	}
	for _, size := range []int{0, 1, 5000, smallBody, smallBody + 1, 1 << 20, 4 << 20} {
		for _, path := range []string{"/count", "/unread", "/closed"} {
			if path == "/unread" && size > 1<<20 {
				continue // whether the client notices before it has sent everything depends on timing
			}
			add(fmt.Sprint(size, " bytes to ", path), "POST", path, bytes.NewReader(make([]byte, size)))
			add(fmt.Sprint(size, " bytes that wait to ", path), "PUT", path, bytes.NewReader(make([]byte, size)), "Expect", "100-continue")
		}
	}
	add("echo", "POST", "/echo", strings.NewReader(strings.Repeat("e", 1<<20)))
	add("pieces", "POST", "/count", &chunkedBody{100, 100})
	add("large pieces", "POST", "/echo", &chunkedBody{300, 10000})
	add("no pieces", "POST", "/count", &chunkedBody{})
	add("query and escapes", "GET", "/request?a=1&b=%2f;c", nil)
	add("an escaped path", "GET", "/request/%2e", nil)
	add("fields", "PATCH", "/request", nil, "X-A", "1", "X-A", "2", "Cookie", "a=b", "Cookie", "c=d", "Te", "trailers", "Accept", "")
	add("delete with a body", "DELETE", "/request", strings.NewReader("x"))
	add("a large header", "GET", "/small", nil, "X-Large", strings.Repeat("x", 2<<20))
	add("a header that fits", "GET", "/small", nil, "X-Large", strings.Repeat("x", 500<<10))
	add("options", "OPTIONS", "/request", nil)
	add("a method of its own", "BREW", "/request", nil)
	add("a host", "GET", "/request", nil).Host = "other.example"
	trailing := add("trailers", "POST", "/count", &chunkedBody{2, 10})
	trailing.Trailer = http.Header{"X-End": {"1"}, "X-Other": {"2"}}
	return all
}

// runWithBothServers runs a test with both servers.
func runWithBothServers(t *testing.T, h http.HandlerFunc, test func(*testServer)) {
	t.Helper()
	for name, attach := range implementations() {
		t.Run(name, func(t *testing.T) { test(newTestServer(t, attach, h)) })
	}
}

func (s *testServer) get(ctx context.Context, path string) *http.Response {
	s.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		s.Fatal(err)
	}
	res, err := s.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func TestReadAndWriteDeadlines(t *testing.T) {
	runWithBothServers(t, func(w http.ResponseWriter, r *http.Request) { handlersByPath[r.URL.Path](w, r) }, func(s *testServer) {
		body, end := io.Pipe()
		defer end.Close()
		req, _ := http.NewRequestWithContext(s.Context(), http.MethodPost, s.base+"/deadline", body)
		res, err := s.Do(req)
		if got := describeResponse(res, err); !strings.HasSuffix(got, `"true"`) {
			s.Errorf("a body that does not come in time: %s", got)
		}
		if _, err := io.ReadAll(s.get(s.Context(), "/write-deadline").Body); err == nil {
			s.Error("an answer that takes too long has ended well")
		}
	})
}

func TestHandlerContextEndsWhenClientDisconnects(t *testing.T) {
	writeErrs := make(chan error, 1)
	runWithBothServers(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		for {
			if _, err := w.Write(make([]byte, 10000)); err != nil {
				writeErrs <- err
				return
			}
		}
	}, func(s *testServer) {
		ctx, stop := context.WithCancel(s.Context())
		s.get(ctx, "/")
		stop()
		if err := <-writeErrs; err == nil {
			s.Error("no error")
		}
	})
}

func TestFullDuplex(t *testing.T) {
	runWithBothServers(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		buf := make([]byte, 100)
		for {
			n, err := r.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			w.(http.Flusher).Flush()
			if err != nil {
				return
			}
		}
	}, func(s *testServer) {
		out, in := io.Pipe()
		req, _ := http.NewRequestWithContext(s.Context(), http.MethodPost, s.base, out)
		res, err := s.Do(req)
		if err != nil {
			s.Fatal(err)
		}
		defer res.Body.Close()
		buf := make([]byte, 100)
		for i := range 50 {
			message := fmt.Sprint("message ", i)
			if _, err := in.Write([]byte(message)); err != nil {
				s.Fatal(err)
			}
			if _, err := io.ReadFull(res.Body, buf[:len(message)]); err != nil || string(buf[:len(message)]) != message {
				s.Fatalf("%q, %v", buf[:len(message)], err)
			}
		}
		_ = in.Close()
		if rest, err := io.ReadAll(res.Body); len(rest) != 0 || err != nil {
			s.Errorf("at the end came %q, %v", rest, err)
		}
	})
}

func TestConcurrentRequests(t *testing.T) {
	runWithBothServers(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }, func(s *testServer) {
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				text := strings.Repeat(fmt.Sprint(i, ","), i*40)
				req, _ := http.NewRequestWithContext(s.Context(), http.MethodPost, s.base, strings.NewReader(text))
				res, err := s.Do(req)
				if err != nil {
					s.Error(err)
					return
				}
				defer res.Body.Close()
				if got, err := io.ReadAll(res.Body); string(got) != text || err != nil {
					s.Errorf("%d: %d of %d bytes came back, %v", i, len(got), len(text), err)
				}
			})
		}
		wg.Wait()
	})
}

func TestEarlyHints(t *testing.T) {
	runWithBothServers(t, handlersByPath["/early"], func(s *testServer) {
		var got []string
		ctx := httptrace.WithClientTrace(s.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			got = append(got, fmt.Sprint(code, h["Link"]))
			return nil
		}})
		if text := describeResponse(s.get(ctx, "/"), nil); strings.Join(got, " ") != "103 [x]" || strings.Contains(text, "Link") {
			s.Error(got, text)
		}
	})
}

func TestReverseProxy(t *testing.T) {
	back := newTestServer(t, implementations()["net/http"], handlersByPath["/trailer"])
	target, err := url.Parse(back.base)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = back.Transport
	runWithBothServers(t, proxy.ServeHTTP, func(s *testServer) {
		if text := describeResponse(s.get(s.Context(), "/"), nil); !strings.Contains(text, "X-End [1]") || !strings.HasSuffix(text,
			`"body"`) {
			s.Error(text)
		}
	})
}

// TestShutdown checks that requests in flight are answered, and that the server then ends without waiting.
func TestShutdown(t *testing.T) {
	started, proceed := make(chan struct{}, 1), make(chan struct{})
	runWithBothServers(t, func(w http.ResponseWriter, _ *http.Request) {
		started <- struct{}{}
		<-proceed
		fmt.Fprint(w, "late, but complete")
	}, func(s *testServer) {
		answer := make(chan string, 1)
		go func() {
			req, _ := http.NewRequestWithContext(context.WithoutCancel(s.Context()), http.MethodGet, s.base, nil)
			answer <- describeResponse(s.Do(req))
		}()
		<-started
		shutDown := make(chan error, 1)
		go func() { shutDown <- s.server.Shutdown(context.WithoutCancel(s.Context())) }()
		select {
		case err := <-shutDown:
			s.Fatal("it did not wait for the request", err)
		case <-time.After(20 * time.Millisecond):
		}
		proceed <- struct{}{}
		if got := <-answer; !strings.HasSuffix(got, `"late, but complete"`) {
			s.Error(got)
		}
		if err := <-shutDown; err != nil {
			s.Error(err)
		}
	})
}

// TestContentLengthIsEnforced checks that a response is never longer than its Content-Length, and that a shorter one is an
// error.
func TestContentLengthIsEnforced(t *testing.T) {
	refused := make(chan error, 1)
	s := newTestServer(t, implementations()["ours"], http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		fmt.Fprint(w, "hel")
		_, err := fmt.Fprint(w, "lo, and more")
		refused <- err
	}))
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.base, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := describeResponse(s.Do(req)); got != "no answer" && !strings.HasSuffix(got, "cut off") {
		t.Errorf("%q was taken for the whole", got)
	}
	if err := <-refused; !errors.Is(err, http.ErrContentLength) {
		t.Errorf("the handler got the error %v", err)
	}
}

// TestWaitingHandlersLeaveWindowForOthers checks that requests whose handlers wait for a lock before they read their bodies
// leave the handler that holds the lock enough of the window of their connection.
func TestWaitingHandlersLeaveWindowForOthers(t *testing.T) {
	t.Parallel()
	for name, attach := range implementations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const all, size = 100, 1 << 20
			lock := make(chan struct{}, 1) // a mutex for which the handlers wait
			lock <- struct{}{}
			s := newTestServer(t, attach, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if authenticated, ok := w.(interface{ Authenticated() }); ok {
					authenticated.Authenticated()
				}
				select {
				case <-lock:
				case <-r.Context().Done():
					return
				}
				n, _ := io.Copy(io.Discard, r.Body)
				lock <- struct{}{}
				fmt.Fprint(w, n)
			}))
			ctx, stop := context.WithTimeout(t.Context(), testTimeout)
			defer stop()
			var wg sync.WaitGroup
			for range all {
				wg.Go(func() {
					req, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.base, strings.NewReader(strings.Repeat("x", size)))
					res, err := s.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					defer res.Body.Close()
					if got, _ := io.ReadAll(res.Body); string(got) != fmt.Sprint(size) {
						t.Errorf("the handler has read %q", got)
					}
				})
			}
			wg.Wait()
		})
	}
}
