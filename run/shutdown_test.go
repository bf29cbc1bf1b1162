package run

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// stoppableServer is a server that a test can stop with cancel.
type stoppableServer struct {
	*testing.T
	*Server
	cancel context.CancelFunc
	ended  chan error
	host   string
	tls    *tls.Config
}

func startStoppable(t *testing.T, change func(*Config)) *stoppableServer {
	t.Helper()
	c := Default()
	c.Listen, c.DataDir, c.InMemory, c.Controllers = "127.0.0.1:0", t.TempDir(), true, []string{"-*"}
	if change != nil {
		change(&c)
	}
	s := &stoppableServer{T: t, ended: make(chan error, 1)}
	ready := make(chan *Server, 1)
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { s.ended <- Serve(ctx, c, slog.New(slog.DiscardHandler), func(s *Server) { ready <- s }) }()
	select {
	case s.Server = <-ready:
	case err := <-s.ended:
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	s.host = strings.TrimPrefix(config.Host, "https://")
	if s.tls, err = clientrest.TLSConfigFor(config); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stoppableServer) client(http2 bool) *http.Client {
	transport := &http.Transport{TLSClientConfig: s.tls.Clone(), ForceAttemptHTTP2: http2}
	s.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

const watchNamespaces = "/api/v1/namespaces?watch=1&timeoutSeconds=600&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"

// watchHTTP opens a watch and reads the initial events. checkEnd reads on and returns an error unless the stream ends cleanly.
func (s *stoppableServer) watchHTTP(http2 bool) (checkEnd func() error) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "https://"+s.host+watchNamespaces, http.NoBody)
	if err != nil {
		s.Fatal(err)
	}
	res, err := s.client(http2).Do(req)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = res.Body.Close() })
	if want := map[bool]int{false: 1, true: 2}[http2]; res.ProtoMajor != want {
		s.Fatalf("got %s", res.Proto)
	}
	body := bufio.NewReader(res.Body)
	readInitialEvents(s.T, func() (string, error) { return body.ReadString('\n') })
	return func() error {
		if rest, err := io.ReadAll(body); err != nil || len(rest) > 0 {
			return fmt.Errorf("%q, %w", rest, err)
		}
		return nil
	}
}

// watchWebSocket does the same over a WebSocket.
func (s *stoppableServer) watchWebSocket() (checkEnd func() error) {
	s.Helper()
	config, err := websocket.NewConfig("wss://"+s.host+watchNamespaces, "https://"+s.host)
	if err != nil {
		s.Fatal(err)
	}
	config.TlsConfig = s.tls.Clone()
	ws, err := config.DialContext(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = ws.Close() })
	readInitialEvents(s.T, func() (text string, err error) { err = websocket.Message.Receive(ws, &text); return text, err })
	return func() error {
		frame, err := ws.NewFrameReader()
		if err == nil && frame.PayloadType() != websocket.CloseFrame {
			err = fmt.Errorf("a frame of type %d", frame.PayloadType())
		}
		return err
	}
}

func readInitialEvents(t *testing.T, next func() (string, error)) {
	t.Helper()
	for {
		text, err := next()
		if err != nil {
			t.Fatal(err)
		}
		var e struct{ Type string }
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		if e.Type == "BOOKMARK" {
			return
		}
	}
}

// startCreate begins a request that creates a ConfigMap; it is in flight until the body is finished.
func (s *stoppableServer) startCreate() (body *io.PipeWriter, code <-chan int) {
	s.Helper()
	read, body := io.Pipe()
	out := make(chan int, 1)
	go func() {
		req, err := http.NewRequestWithContext(s.Context(), http.MethodPost, "https://"+s.host+"/api/v1/namespaces/default/configmaps",
			read)
		if err != nil {
			s.Error(err)
			return
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := s.client(true).Do(req)
		if err != nil {
			out <- 0
			return
		}
		_ = res.Body.Close()
		out <- res.StatusCode
	}()
	if _, err := fmt.Fprint(body, `{"apiVersion":"v1","kind":"ConfigMap","metadata":`); err != nil {
		s.Fatal(err)
	}
	if !poll(s.Context(), func() bool { _, writing := s.api.InFlight(); return writing == 1 }) {
		s.Fatal("the request does not arrive")
	}
	return body, out
}

// health returns the answer of a health endpoint, without the listener.
func (s *stoppableServer) health(path string) (int, string) {
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, httptest.NewRequestWithContext(s.Context(), http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String()
}

// TestShutdownEndsWatchesCleanly checks that a server that stops ends its watches without an error, so that clients resume and
// do not list again. Requests in flight are answered, and meanwhile the server is alive but not ready.
func TestShutdownEndsWatchesCleanly(t *testing.T) {
	s := startStoppable(t, nil)
	if code, text := s.health("/readyz?verbose"); code != http.StatusOK || !strings.Contains(text, "[+]shutdown ok") {
		t.Errorf("before: %d %s", code, text)
	}
	watches := map[string]func() error{"HTTP/1.1": s.watchHTTP(false), "HTTP/2": s.watchHTTP(true), "WebSocket": s.watchWebSocket()}
	body, answer := s.startCreate()
	s.cancel()
	for name, checkEnd := range watches {
		if err := checkEnd(); err != nil {
			t.Errorf("the watch over %s ends with %v", name, err)
		}
	}
	if code, text := s.health("/readyz"); code != http.StatusInternalServerError || !strings.Contains(text, "[-]shutdown failed") {
		t.Errorf("/readyz of a server that stops: %d %s", code, text)
	}
	if code, text := s.health("/livez"); code != http.StatusOK {
		t.Errorf("/livez of a server that stops: %d %s", code, text)
	}
	select {
	case err := <-s.ended:
		t.Fatalf("the server did not wait for the request: %v", err)
	default:
	}
	if _, err := fmt.Fprint(body, `{"name":"late"}}`); err != nil {
		t.Fatal(err)
	}
	_ = body.Close()
	if code := <-answer; code != http.StatusCreated {
		t.Errorf("the request in flight was answered with %d", code)
	}
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

// TestShutdownTimeout checks that the server waits for a request that does not finish only for the shutdown timeout.
func TestShutdownTimeout(t *testing.T) {
	t.Parallel()
	s := startStoppable(t, func(c *Config) { c.ShutdownTimeout = 50 * time.Millisecond })
	body, answer := s.startCreate()
	defer func() { _ = body.Close() }()
	s.cancel()
	select {
	case err := <-s.ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(15 * time.Second): // it takes much less, also on a busy machine
		t.Fatal("the server waits for a request that does not finish")
	}
	if code := <-answer; code == http.StatusCreated {
		t.Error("the request that was cut off has succeeded")
	}
}

// TestShutdownDelay checks that during the shutdown delay the server answers requests but is not ready.
func TestShutdownDelay(t *testing.T) {
	t.Parallel()
	s := startStoppable(t, func(c *Config) { c.ShutdownDelay = 10 * time.Second })
	client := s.client(true)
	get := func(path string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.host+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			return 0
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	asked := time.Now()
	s.cancel()
	if !poll(t.Context(), s.stopping.Load) {
		t.Fatal("it does not stop")
	}
	ready, live, read := get("/readyz"), get("/livez"), get("/api/v1/namespaces")
	if <-s.ended; time.Since(asked) < 10*time.Second {
		t.Errorf("the server has ended after %v", time.Since(asked))
	}
	if ready != http.StatusInternalServerError || live != http.StatusOK || read != http.StatusOK {
		t.Errorf("meanwhile /readyz is %d, /livez %d and a list %d", ready, live, read)
	}
}
