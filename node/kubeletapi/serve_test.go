package kubeletapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	utilexec "k8s.io/utils/exec"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/node/cri"
	"proa.dev/node/fact"
	"proa.dev/node/pod"
)

// fakeReviewer answers TokenReviews and SubjectAccessReviews: the token is the name of the user, and the name is the
// permission VERB:SUBRESOURCE of the user.
type fakeReviewer struct {
	client.Writer
	reviews int
}

func (j *fakeReviewer) Create(_ context.Context, _ schema.GroupResource, obj kind.Object) (kind.Object, error) {
	j.reviews++
	switch o := obj.(type) {
	case *authenticationv1.TokenReview:
		if o.Spec.Token == "forged" {
			o.Status.Error = "forged"
			return o, nil
		}
		o.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: o.Spec.Token}}
		return o, nil
	case *authorizationv1.SubjectAccessReview:
		a := o.Spec.ResourceAttributes
		o.Status.Allowed = a.Resource == "nodes" && a.Name == "n" && (o.Spec.User == "all" || o.Spec.User == a.Verb+":"+a.Subresource)
		return o, nil
	}
	return nil, errors.New("not a review")
}

// fakeRuntime is a fake streaming server of a runtime: a command writes its arguments, then its input, and exits with code 3.
type fakeRuntime struct {
	url  string
	dir  string
	last *cri.ExecRequest
}

func (r *fakeRuntime) ExecURL(_ context.Context, q *cri.ExecRequest) (string, error) {
	r.last = q
	return r.url + "/exec?" + url.Values{"command": q.Cmd, "input": queryFlag(q.Stdin), "output": queryFlag(q.Stdout),
		"error": queryFlag(q.Stderr), "tty": queryFlag(q.Tty)}.Encode(), nil
}

func queryFlag(on bool) []string {
	if on {
		return []string{"1"}
	}
	return nil
}

func (r *fakeRuntime) AttachURL(ctx context.Context, q *cri.AttachRequest) (string, error) {
	return r.ExecURL(ctx, &cri.ExecRequest{Stdin: q.Stdin, Stdout: q.Stdout, Stderr: q.Stderr, Tty: q.Tty, Cmd: []string{"attached"}})
}

func (r *fakeRuntime) LogPath(_ context.Context, id string) (string, error) {
	return filepath.Join(r.dir, id+".log"), nil
}

func (r *fakeRuntime) NetworkNamespace(context.Context, string) (string, error) {
	return "/proc/self/ns/net", nil
}

func (r *fakeRuntime) ExecSync(_ context.Context, id string, command []string, _ time.Duration) ([]byte, int, error) {
	if command[0] == "false" {
		return []byte("no"), 1, nil
	}
	return []byte(id + " ran " + strings.Join(command, ",")), 0, nil
}

// ExecInContainer runs the command.
func (r *fakeRuntime) ExecInContainer(_ context.Context, _, _, _ string, cmd []string, in io.Reader, out, err io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	fmt.Fprintf(out, "%s;", strings.Join(cmd, ","))
	if tty {
		size := <-resize
		fmt.Fprintf(out, "%dx%d;", size.Width, size.Height)
	}
	if in != nil {
		_, _ = io.Copy(out, in)
	}
	if err != nil {
		fmt.Fprint(err, "stderr text")
	}
	return utilexec.CodeExitError{Err: errors.New("three"), Code: 3}
}

// fakePods lists the Pods of the node.
type fakePods []pod.Local

func (n fakePods) Pods() []pod.Local { return n }

// testServer is a kubelet API with a fake runtime, and a Pod whose container c runs.
type testServer struct {
	*httptest.Server
	t        *testing.T
	server   *Server
	reviewer *fakeReviewer
	runtime  *fakeRuntime
}

func newTestServer(t *testing.T) *testServer {
	t.Helper()
	r := &testServer{t: t, reviewer: &fakeReviewer{}, runtime: &fakeRuntime{dir: t.TempDir()}}
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		o, err := remotecommand.NewOptions(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeExec(w, req, r.runtime, "", "", "", req.URL.Query()["command"], o, time.Minute, time.Minute,
			[]string{remotecommand.StreamProtocolV4Name})
	}))
	t.Cleanup(back.Close)
	r.runtime.url = back.URL
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}, {Name: "waits"}}}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "c", ContainerID: "x://new", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "x://old"}}},
		{Name: "waits", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
	}
	facts := &fact.Pod{Namespace: "ns", Name: "p", UID: "u",
		Sandboxes: []fact.Sandbox{{ID: "box", Ready: true, Network: os.Geteuid() == 0}},
		Containers: []fact.Container{{ID: "new", Name: "c", State: fact.Running, Image: "i",
			LogPath: filepath.Join(r.runtime.dir, "new.log")}}}
	for name, text := range map[string]string{"new": "now", "old": "before"} {
		line := "2026-01-01T00:00:00Z stdout F " + text + "\n"
		if err := os.WriteFile(filepath.Join(r.runtime.dir, name+".log"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hostLogs := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(hostLogs, "syslog"), []byte("a line\n"), 0o600),
		os.Symlink("/etc/passwd", filepath.Join(hostLogs, "outside")),
		syscall.Mkfifo(filepath.Join(hostLogs, "pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	r.server = New(Config{HostLogs: hostLogs, Node: "n", Pods: fakePods{{Pod: p, Facts: facts}}, Runtime: r.runtime, Client: r.reviewer,
		Log: slog.New(slog.DiscardHandler)})
	r.Server = httptest.NewServer(r.server)
	t.Cleanup(r.Server.Close)
	return r
}

// request sends a request with a bearer token, and returns the response as "code text".
func (r *testServer) request(method, path, who string) string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.URL+path, http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	if who != "" {
		req.Header.Set("Authorization", "Bearer "+who)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return strconv.Itoa(resp.StatusCode) + " " + strings.TrimSpace(string(body))
}

func TestResponsesByPath(t *testing.T) {
	r := newTestServer(t)
	for _, test := range []struct{ who, request, want string }{
		{"", "GET /healthz", "401 Unauthorized"},
		{"forged", "GET /healthz", "401 Unauthorized"},
		{"all", "GET /healthz", "200 ok"},
		{"get:healthz", "GET /healthz", "200 ok"},
		{"get:proxy", "GET /healthz", "200 ok"},
		{"get:stats", "GET /healthz", "403 Forbidden (user=get:stats, verb=get, resource=nodes, subresource(s)=[healthz proxy])"},
		{"get:proxy", "GET /exec/ns/p/c", "403 Forbidden (user=get:proxy, verb=create, resource=nodes, subresource(s)=[proxy])"},
		{"all", "GET /nothing", "404 404 page not found"},
		{"all", "DELETE /pods", "405 Method Not Allowed"},
		{"get:log", "GET /logs/syslog", "200 a line"},
		{"get:log", "GET /logs/", "200 <!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n<a href=\"outside\">outside</a>\n<a href=\"pipe\">pipe</a>\n<a href=\"syslog\">syslog</a>\n</pre>"},
		{"get:log", "GET /logs/outside", "500 500 Internal Server Error"},
		{"get:log", "GET /logs/pipe", "404 404 page not found"},
		{"get:log", "GET /logs/nothing", "404 404 page not found"},
		{"get:proxy", "GET /logs/syslog", "403 Forbidden (user=get:proxy, verb=get, resource=nodes, subresource(s)=[log])"},
		{"all", "GET /debug/pprof/heap", "405 profiling endpoint is disabled."},
		{"all", "POST /checkpoint/ns/p/c", "404 checkpointing of ns/p/c failed (not supported)"},
		{"get:configz", "GET /configz", `200 {"kubeletconfig":{}}`},
		{"get:pods", "GET /runningpods/", `200 {"kind":"PodList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"p","namespace":"ns","uid":"u"},"spec":{"containers":[{"name":"c","image":"i","resources":{}}]},"status":{}}]}`},

		{"all", "GET /containerLogs/ns/p/c", "200 now"},
		{"all", "GET /containerLogs/ns/p/c?follow=true&limitBytes=2", "200 no"},
		{"all", "GET /containerLogs/ns/p/c?previous=true", "200 before"},
		{"all", "GET /containerLogs/ns/p/c?timestamps=true", "200 2026-01-01T00:00:00.000000000Z now"},
		{"all", "GET /containerLogs/ns/p/c?tail=all&tailLines=0", "200 now"},
		{"all", "GET /containerLogs/ns/p/c?tailLines=x", `400 {"message": "Unable to decode query."}`},
		{"all", "GET /containerLogs/ns/p/c?tailLines=-1", `422 {"message": "Invalid request."}`},
		{"all", "GET /containerLogs/ns/q/c", `404 pod "q" does not exist`},
		{"all", "GET /containerLogs/ns/p/d", `404 container "d" not found in pod "p"`},
		{"all", "GET /containerLogs/ns/p/waits", `400 container "waits" in pod "p" is waiting to start: ContainerCreating`},
		{"all", "GET /containerLogs/ns/p/waits?previous=true", `400 previous terminated container "waits" in pod "p" not found`},

		{"create:proxy", "POST /run/ns/p/c?cmd=ls%20-l", "200 new ran ls,-l"},
		{"all", "POST /run/ns/p/c?cmd=false", "500 command 'false' exited with 1: no"},
		{"all", "POST /run/ns/p/other/c?cmd=ls", "404 pod does not exist"},
		{"all", "POST /exec/ns/p/c?command=ls", "400 you must specify at least 1 of stdin, stdout, stderr"},
		{"all", "POST /exec/ns/p/waits?command=ls&output=1", `500 container not found ("waits")`},
		{"all", "POST /exec/ns/p/c?command=ls&output=1", "500 Upgrade request required"},
		{"all", "POST /attach/ns/p/waits?output=1", "500 container waits not found in pod p_ns"},
		{"all", "POST /portForward/ns/p/v", "404 pod does not exist"},
		{"all", "POST /portForward/ns/p", "400 unable to upgrade: header X-Stream-Protocol-Version does not exist in request with 4 headers"},
	} {
		method, path, _ := strings.Cut(test.request, " ")
		if got := r.request(method, path, test.who); got != test.want {
			t.Errorf("%s requests %s:\n got %s\nwant %s", test.who, test.request, got, test.want)
		}
	}
}

func TestReviewsAreCached(t *testing.T) {
	r := newTestServer(t)
	r.request("GET", "/healthz", "all")
	first := r.reviewer.reviews
	r.request("GET", "/healthz", "all")
	if r.reviewer.reviews != first {
		t.Errorf("%d reviews for the first request and %d for the second", first, r.reviewer.reviews-first)
	}
}

func TestInProcess(t *testing.T) {
	r := newTestServer(t)
	rec := httptest.NewRecorder()
	r.server.InProcess(Identity{Username: "all"}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/healthz", http.NoBody))
	if rec.Code != http.StatusOK {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}

func (r *testServer) dialWebSocket(path string, protocols ...string) *websocket.Conn {
	r.t.Helper()
	c, err := websocket.NewConfig("ws"+strings.TrimPrefix(r.URL, "http")+path, "http://here")
	if err != nil {
		r.t.Fatal(err)
	}
	c.Protocol = protocols
	c.Header.Set("Authorization", "Bearer all")
	ws, err := c.DialContext(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = ws.Close() })
	return ws
}

// readChannels returns what arrives on each channel of a WebSocket until it is closed.
func readChannels(ws *websocket.Conn) (out [5]string) {
	for {
		var m []byte
		if err := websocket.Message.Receive(ws, &m); err != nil {
			return out
		}
		if len(m) > 0 && m[0] < 5 {
			out[m[0]] += string(m[1:])
		}
	}
}

func TestExecOverWebSockets(t *testing.T) {
	for _, test := range []struct {
		name, path, protocol string
		send                 []string
		out, err             string
	}{
		{"v5", "/exec/ns/p/c?command=a&command=b&input=1&output=1&error=1", "v5.channel.k8s.io",
			[]string{"\x00hello ", "\x00there", "\xff\x00"}, "a,b;hello there", "stderr text"},
		{"v5 without input", "/exec/ns/p/c?command=a&output=1&error=1", "v5.channel.k8s.io", nil, "a;", "stderr text"},
		{"v5 with a terminal", "/exec/ns/p/c?command=a&input=1&output=1&error=1&tty=1", "v5.channel.k8s.io",
			[]string{"\x04{\"Width\":80,\"Height\":24}", "\x00x", "\xff\x00"}, "a;80x24;x", ""},
		{"attached", "/attach/ns/p/c?output=1", "v5.channel.k8s.io", nil, "attached;", ""},
		{"v4", "/exec/ns/p/c?command=a&output=1&error=1", "v4.channel.k8s.io", nil, "a;", "stderr text"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newTestServer(t)
			ws := r.dialWebSocket(test.path, test.protocol)
			for _, m := range test.send {
				if err := websocket.Message.Send(ws, []byte(m)); err != nil {
					t.Fatal(err)
				}
			}
			got := readChannels(ws)
			if got[1] != test.out || got[2] != test.err {
				t.Errorf("stdout %q, stderr %q; want %q, %q", got[1], got[2], test.out, test.err)
			}
			if !strings.Contains(got[3], `"reason":"NonZeroExitCode"`) || !strings.Contains(got[3], `"message":"3"`) {
				t.Errorf("the status is %s", got[3])
			}
		})
	}
}

func TestExecOverV5WithoutRuntime(t *testing.T) {
	r := newTestServer(t)
	r.runtime.url = "http://127.0.0.1:1"
	got := readChannels(r.dialWebSocket("/exec/ns/p/c?command=a&output=1", "v5.channel.k8s.io"))
	if !strings.Contains(got[3], "connection refused") || !strings.Contains(got[3], `"reason":"InternalError"`) {
		t.Errorf("the status is %s", got[3])
	}
}

func TestExecOverSPDY(t *testing.T) {
	r := newTestServer(t)
	rt, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{UpgradeTransport: &http.Transport{}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.URL+"/exec/ns/p/c?command=a&input=1&output=1", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer all"}, "X-Stream-Protocol-Version": {protocolV4}}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	conn, err := rt.NewConnection(resp)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	streams := map[string]httpstream.Stream{}
	for _, name := range []string{"error", "stdin", "stdout"} {
		if streams[name], err = conn.CreateStream(http.Header{"Streamtype": {name}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(streams["stdin"], "input"); err != nil {
		t.Fatal(err)
	}
	_ = streams["stdin"].Close()
	out, err := io.ReadAll(streams["stdout"])
	if err != nil || string(out) != "a;input" {
		t.Errorf("%q (%v)", out, err)
	}
}

// startUppercaseServer starts a server that returns what it receives in capital letters, once the client has sent everything.
func startUppercaseServer(t *testing.T) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				text, _ := io.ReadAll(c)
				_, _ = c.Write(bytes.ToUpper(text))
			}()
		}
	}()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

func TestPortForward(t *testing.T) {
	port := startUppercaseServer(t)
	requests := 0
	forward := func(t *testing.T, conn httpstream.Connection, port string) (answer, failure string) {
		t.Helper()
		requests++
		id := strconv.Itoa(requests) // a new id for each pair of streams, since the server may still hold the last pair
		head := func(streamType string) http.Header {
			return http.Header{"Streamtype": {streamType}, "Port": {port}, "Requestid": {id}}
		}
		bad, err := conn.CreateStream(head("error"))
		if err != nil {
			t.Fatal(err)
		}
		_ = bad.Close()
		data, err := conn.CreateStream(head("data"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(data, "lower")
		_ = data.Close()
		text, _ := io.ReadAll(data)
		why, _ := io.ReadAll(bad)
		return string(text), string(why)
	}
	for _, how := range []string{"SPDY", "SPDY within a WebSocket"} {
		t.Run(how, func(t *testing.T) {
			r := newTestServer(t)
			var conn httpstream.Connection
			if how == "SPDY" {
				rt, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{UpgradeTransport: &http.Transport{}})
				if err != nil {
					t.Fatal(err)
				}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.URL+"/portForward/ns/p", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				req.Header = http.Header{"Authorization": {"Bearer all"}, "X-Stream-Protocol-Version": {"portforward.k8s.io"}}
				resp, err := rt.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				if conn, err = rt.NewConnection(resp); err != nil {
					t.Fatal(err)
				}
			} else {
				ws := r.dialWebSocket("/portForward/ns/p", "SPDY/3.1+portforward.k8s.io")
				ws.PayloadType = websocket.BinaryFrame
				var err error
				if conn, err = spdy.NewClientConnection(ws); err != nil {
					t.Fatal(err)
				}
			}
			defer func() { _ = conn.Close() }()
			if got, why := forward(t, conn, port); got != "LOWER" || why != "" {
				t.Errorf("got %q, %q", got, why)
			}
			if _, why := forward(t, conn, "1"); !strings.Contains(why, "error forwarding port 1 to pod p, uid u: failed to connect to localhost:1") {
				t.Errorf("a port on which nothing listens: %q", why)
			}
		})
	}
	t.Run("channels of a WebSocket", func(t *testing.T) {
		r := newTestServer(t)
		ws := r.dialWebSocket("/portForward/ns/p?port="+port, "v4.channel.k8s.io")
		var m []byte
		if err := websocket.Message.Receive(ws, &m); err != nil || len(m) != 3 || m[0] != 0 {
			t.Errorf("the first message is %v (%v), want the port", m, err)
		}
	})
}

// TestPortForwardOpensStreamBeforeItFails ends a port-forward before the server has told the client that the
// stream is open: the client must still see an open stream, so that it can read the error.
func TestPortForwardOpensStreamBeforeItFails(t *testing.T) {
	near, far := net.Pipe()
	// The reply is sent after the handler returns.
	server, err := spdy.NewServerConnection(far, func(stream httpstream.Stream, _ <-chan struct{}) error {
		if err := networkNamespace("").PortForward(t.Context(), "p", "u", 1, stream); err == nil {
			t.Error("something listens on port 1")
		}
		return stream.Reset()
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	conn, err := spdy.NewClientConnection(near)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	data, err := conn.CreateStream(http.Header{"Streamtype": {"data"}, "Port": {"1"}, "Requestid": {"1"}})
	if err != nil {
		t.Fatalf("the stream was never open: %v", err)
	}
	if text, err := io.ReadAll(data); err != nil || len(text) > 0 {
		t.Errorf("the stream of a port on which nothing listens has %q (%v)", text, err)
	}
}

func TestPortForwardWithoutNetworkNamespace(t *testing.T) {
	if _, err := networkNamespace(filepath.Join(t.TempDir(), "none")).dial(t.Context(), 1); err == nil ||
		!strings.Contains(err.Error(), "open the network of the pod") {
		t.Error(err)
	}
}

// TestPortForwardEndsWithItsClient disconnects clients from a port that never closes its connections: none of them stays open.
func TestPortForwardEndsWithItsClient(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	open := make(chan net.Conn)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open <- c // it never closes the connection
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	r := newTestServer(t)
	ws := r.dialWebSocket("/portForward/ns/p", "SPDY/3.1+portforward.k8s.io")
	ws.PayloadType = websocket.BinaryFrame
	conn, err := spdy.NewClientConnection(ws)
	if err != nil {
		t.Fatal(err)
	}
	const connections = 3
	for i := range connections {
		for _, streamType := range []string{"error", "data"} {
			s, err := conn.CreateStream(http.Header{"Streamtype": {streamType}, "Port": {port}, "Requestid": {strconv.Itoa(i)}})
			if err != nil {
				t.Fatal(err)
			}
			_ = s.Close()
		}
	}
	var all []net.Conn
	for range connections {
		all = append(all, <-open)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		r.server.forwarded.mu.Lock()
		left := r.server.forwarded.all
		r.server.forwarded.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections to the port stay open after their client is gone", left)
		}
	}
	for _, c := range all {
		_ = c.Close()
	}
}

func TestForwardedConnectionsAreBounded(t *testing.T) {
	var f forwarded
	refused := func(uid types.UID, own *int) string {
		if err := f.begin(uid, own); err != nil {
			return err.Error()
		}
		return ""
	}
	var requests [9]int
	for i := range maxForwardedOfClient {
		for r := range 8 {
			if why := refused(types.UID(strconv.Itoa(r/2)), &requests[r]); why != "" {
				t.Fatalf("connection %d of request %d: %s", i, r, why)
			}
		}
	}
	for _, c := range []struct {
		pod  types.UID
		own  *int
		want string
	}{{"0", &requests[0], "this port-forward has 256"}, {"0", &requests[8], "the Pod has 512"}, {"new", &requests[8], "the node has 2048"}} {
		if got := refused(c.pod, c.own); !strings.Contains(got, c.want) {
			t.Errorf("got %q, want %s", got, c.want)
		}
	}
	f.end("0", &requests[0])
	if why := refused("new", &requests[8]); why != "" {
		t.Error(why)
	}
	f.end("new", &requests[8])
	for range maxForwardedOfClient {
		for r := range 8 {
			if requests[r] > 0 {
				f.end(types.UID(strconv.Itoa(r/2)), &requests[r])
			}
		}
	}
	if f.all != 0 || len(f.pods) != 0 {
		t.Errorf("%d connections of %d Pods are left", f.all, len(f.pods))
	}
}
