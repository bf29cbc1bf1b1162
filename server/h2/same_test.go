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

// kinds are the server of this package and the one in net/http, which has to pass the same tests.
func kinds() map[string]func(*http.Server) {
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

// site is a server with a client.
type site struct {
	*testing.T
	*http.Client
	server *http.Server
	base   string
}

func newSite(t *testing.T, attach func(*http.Server), h http.Handler) *site {
	t.Helper()
	maker := httptest.NewTLSServer(nil) // for its certificate
	maker.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, TLSConfig: &tls.Config{Certificates: maker.TLS.Certificates}, ErrorLog: log.New(io.Discard, "", 0),
		MaxHeaderBytes: 1 << 20}
	attach(s)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.ServeTLS(l, "", "") }()
	tr := maker.Client().Transport.(*http.Transport).Clone()
	tr.ForceAttemptHTTP2, tr.ExpectContinueTimeout = true, time.Minute
	t.Cleanup(func() { tr.CloseIdleConnections(); _ = s.Close(); <-done })
	return &site{t, &http.Client{Transport: tr,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, s, "https://" + l.Addr().String()}
}

// say returns a response as text, without what differs each time.
func say(res *http.Response, err error) string {
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
					fmt.Fprintln(&b, "a date that is none:", h[key])
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

// answers are handlers by path. What a client sees of them must be the same with both servers.
var answers = map[string]http.HandlerFunc{
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

// TestSameAnswers checks that a client sees the same of every handler with both servers.
func TestSameAnswers(t *testing.T) {
	said := map[string]map[string]string{}
	for name, attach := range kinds() {
		said[name] = map[string]string{}
		mux := http.NewServeMux()
		for path, h := range answers {
			mux.Handle(path, h)
		}
		s := newSite(t, attach, mux)
		note := func(what string, req *http.Request) {
			t.Helper()
			if req.GetBody == nil && req.Body != nil {
				req.ContentLength = max(req.ContentLength, -1)
			}
			said[name][what] = say(s.Do(req))
		}
		for path := range answers {
			if path == "/deadline" || path == "/write-deadline" {
				continue
			}
			for _, method := range []string{"GET", "HEAD", "POST"} {
				req, err := http.NewRequestWithContext(t.Context(), method, s.base+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				note(method+" "+path, req)
			}
		}
		for what, req := range requests(t, s.base) {
			note(what, req)
		}
	}
	for what, want := range said["net/http"] {
		if got := said["ours"][what]; got != want {
			t.Errorf("%s: a client sees\n%s\nwith net/http it saw\n%s", what, got, want)
		}
	}
	if len(said["ours"]) != len(said["net/http"]) || len(said["ours"]) < 100 {
		t.Errorf("%d and %d answers", len(said["ours"]), len(said["net/http"]))
	}
}

// slowly is a body of unknown length that comes in pieces.
type slowly struct {
	pieces int
	size   int
}

func (s *slowly) Read(p []byte) (int, error) {
	if s.pieces == 0 {
		return 0, io.EOF
	}
	s.pieces--
	return copy(p, bytes.Repeat([]byte("z"), s.size)), nil
}

// requests are requests with bodies and fields of all kinds.
func requests(t *testing.T, base string) map[string]*http.Request {
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
	add("pieces", "POST", "/count", &slowly{100, 100})
	add("large pieces", "POST", "/echo", &slowly{300, 10000})
	add("no pieces", "POST", "/count", &slowly{})
	add("query and escapes", "GET", "/request?a=1&b=%2f;c", nil)
	add("an escaped path", "GET", "/request/%2e", nil)
	add("fields", "PATCH", "/request", nil, "X-A", "1", "X-A", "2", "Cookie", "a=b", "Cookie", "c=d", "Te", "trailers", "Accept", "")
	add("delete with a body", "DELETE", "/request", strings.NewReader("x"))
	add("a large header", "GET", "/small", nil, "X-Large", strings.Repeat("x", 2<<20))
	add("a header that fits", "GET", "/small", nil, "X-Large", strings.Repeat("x", 500<<10))
	add("options", "OPTIONS", "/request", nil)
	add("a method of its own", "BREW", "/request", nil)
	add("a host", "GET", "/request", nil).Host = "other.example"
	trailing := add("trailers", "POST", "/count", &slowly{2, 10})
	trailing.Trailer = http.Header{"X-End": {"1"}, "X-Other": {"2"}}
	return all
}

// each runs a test with both servers.
func each(t *testing.T, h http.HandlerFunc, test func(*site)) {
	t.Helper()
	for name, attach := range kinds() {
		t.Run(name, func(t *testing.T) { test(newSite(t, attach, h)) })
	}
}

func (s *site) get(ctx context.Context, path string) *http.Response {
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

func TestDeadlines(t *testing.T) {
	each(t, func(w http.ResponseWriter, r *http.Request) { answers[r.URL.Path](w, r) }, func(s *site) {
		body, end := io.Pipe()
		defer end.Close()
		req, _ := http.NewRequestWithContext(s.Context(), http.MethodPost, s.base+"/deadline", body)
		res, err := s.Do(req)
		if got := say(res, err); !strings.HasSuffix(got, `"true"`) {
			s.Errorf("a body that does not come in time: %s", got)
		}
		if _, err := io.ReadAll(s.get(s.Context(), "/write-deadline").Body); err == nil {
			s.Error("an answer that takes too long has ended well")
		}
	})
}

func TestHandlersLearnThatClientsLeave(t *testing.T) {
	left := make(chan error, 1)
	each(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		for {
			if _, err := w.Write(make([]byte, 10000)); err != nil {
				left <- err
				return
			}
		}
	}, func(s *site) {
		ctx, stop := context.WithCancel(s.Context())
		s.get(ctx, "/")
		stop()
		if err := <-left; err == nil {
			s.Error("no error")
		}
	})
}

func TestClientsMayTalkWhileTheyAreAnswered(t *testing.T) {
	each(t, func(w http.ResponseWriter, r *http.Request) {
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
	}, func(s *site) {
		out, in := io.Pipe()
		req, _ := http.NewRequestWithContext(s.Context(), http.MethodPost, s.base, out)
		res, err := s.Do(req)
		if err != nil {
			s.Fatal(err)
		}
		defer res.Body.Close()
		buf := make([]byte, 100)
		for i := range 50 {
			say := fmt.Sprint("message ", i)
			if _, err := in.Write([]byte(say)); err != nil {
				s.Fatal(err)
			}
			if _, err := io.ReadFull(res.Body, buf[:len(say)]); err != nil || string(buf[:len(say)]) != say {
				s.Fatalf("%q, %v", buf[:len(say)], err)
			}
		}
		_ = in.Close()
		if rest, err := io.ReadAll(res.Body); len(rest) != 0 || err != nil {
			s.Errorf("at the end came %q, %v", rest, err)
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	each(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }, func(s *site) {
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
	each(t, answers["/early"], func(s *site) {
		var got []string
		ctx := httptrace.WithClientTrace(s.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			got = append(got, fmt.Sprint(code, h["Link"]))
			return nil
		}})
		if text := say(s.get(ctx, "/"), nil); strings.Join(got, " ") != "103 [x]" || strings.Contains(text, "Link") {
			s.Error(got, text)
		}
	})
}

func TestBehindAProxy(t *testing.T) {
	back := newSite(t, kinds()["net/http"], answers["/trailer"])
	target, err := url.Parse(back.base)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = back.Transport
	each(t, proxy.ServeHTTP, func(s *site) {
		if text := say(s.get(s.Context(), "/"), nil); !strings.Contains(text, "X-End [1]") || !strings.HasSuffix(text, `"body"`) {
			s.Error(text)
		}
	})
}

// TestShutdown checks that requests in flight are answered, and that the server then ends without waiting.
func TestShutdown(t *testing.T) {
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	each(t, func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-goOn
		fmt.Fprint(w, "late, but complete")
	}, func(s *site) {
		answer := make(chan string, 1)
		go func() {
			req, _ := http.NewRequestWithContext(context.WithoutCancel(s.Context()), http.MethodGet, s.base, nil)
			answer <- say(s.Do(req))
		}()
		<-begun
		down := make(chan error, 1)
		go func() { down <- s.server.Shutdown(context.WithoutCancel(s.Context())) }()
		select {
		case err := <-down:
			s.Fatal("it did not wait for the request", err)
		case <-time.After(20 * time.Millisecond):
		}
		goOn <- struct{}{}
		if got := <-answer; !strings.HasSuffix(got, `"late, but complete"`) {
			s.Error(got)
		}
		if err := <-down; err != nil {
			s.Error(err)
		}
	})
}

// TestPromisedLength checks that a response is never longer than its Content-Length, and that a shorter one is an
// error.
func TestPromisedLength(t *testing.T) {
	refused := make(chan error, 1)
	s := newSite(t, kinds()["ours"], http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		fmt.Fprint(w, "hel")
		_, err := fmt.Fprint(w, "lo, and more")
		refused <- err
	}))
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.base, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := say(s.Do(req)); got != "no answer" && !strings.HasSuffix(got, "cut off") {
		t.Errorf("%q was taken for the whole", got)
	}
	if err := <-refused; !errors.Is(err, http.ErrContentLength) {
		t.Errorf("the handler was told: %v", err)
	}
}

// TestHandlersThatWaitDoNotHoldUpOthers checks that requests whose handlers do not read their bodies yet, because they
// wait for what another one holds, leave that one enough of the window of their connection.
func TestHandlersThatWaitDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	for name, attach := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const all, size = 100, 1 << 20
			turn := make(chan struct{}, 1) // what one holds and others wait for
			turn <- struct{}{}
			s := newSite(t, attach, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if known, ok := w.(interface{ Authenticated() }); ok {
					known.Authenticated()
				}
				select {
				case <-turn:
				case <-r.Context().Done():
					return
				}
				n, _ := io.Copy(io.Discard, r.Body)
				turn <- struct{}{}
				fmt.Fprint(w, n)
			}))
			ctx, stop := context.WithTimeout(t.Context(), patience)
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
