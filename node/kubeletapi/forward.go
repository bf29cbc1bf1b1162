package kubeletapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"proa.dev/node/pod"
)

const (
	// streamTimeout is how long a client may take to open the streams of a port.
	streamTimeout = 30 * time.Second
	// silentTimeout is how long a port may stay silent after its client has sent its last byte.
	silentTimeout = 5 * time.Minute
)

// The bounds of connections to Pods that are forwarded at a time, each of which takes a file descriptor.
const (
	maxForwardedPorts    = 100 // that a request names
	maxForwardedOfClient = 256 // of one request
	maxForwardedOfPod    = 512
	maxForwarded         = 2048
)

// portForward serves port-forward. The agent dials from within the network namespace of the Pod itself, without the
// runtime.
func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	tunnel := wsstream.IsWebSocketRequestWithTunnelingProtocol(r)
	o := &portforward.V4Options{}
	if !tunnel {
		var err error
		if o, err = portforward.NewV4Options(r); err != nil {
			sendError(w, err.Error(), http.StatusBadRequest)
			return
		}
		if len(o.Ports) > maxForwardedPorts {
			sendError(w, fmt.Sprintf("the request names %d ports; at most %d can be forwarded at once", len(o.Ports), maxForwardedPorts),
				http.StatusBadRequest)
			return
		}
	}
	l, found := s.find(r)
	if !found {
		sendError(w, "pod does not exist", http.StatusNotFound)
		return
	}
	to, err := s.networkOf(r.Context(), l)
	if err != nil {
		sendError(w, err.Error(), http.StatusInternalServerError)
		return
	}
	serve := func(w http.ResponseWriter, r *http.Request) {
		ctx, stop := context.WithCancel(r.Context())
		defer stop() // the client has disconnected: so do the ports
		f := &forwarder{to: to, ctx: ctx, pod: l.Pod.UID, all: &s.forwarded}
		portforward.ServePortForward(w, r, f, l.Pod.Name, string(l.Pod.UID), o, idleTimeout, streamTimeout, portforward.SupportedProtocols)
	}
	if tunnel {
		serveTunnel(w, r, serve) //nolint:contextcheck // the request has the context
		return
	}
	serve(w, r)
}

// networkNamespace is the path of a network namespace to dial from; empty for that of the node.
type networkNamespace string

// networkOf returns the network namespace of a Pod.
func (s *Server) networkOf(ctx context.Context, l pod.Local) (networkNamespace, error) {
	if l.Facts == nil || len(l.Facts.Sandboxes) == 0 || !l.Facts.Sandboxes[0].Ready {
		return "", fmt.Errorf("pod not found (%q)", l.Pod.Name+"_"+l.Pod.Namespace)
	}
	box := &l.Facts.Sandboxes[0]
	if !box.Network {
		return "", nil
	}
	path, err := s.Runtime.NetworkNamespace(ctx, box.ID)
	if err != nil {
		return "", fmt.Errorf("find the network of the pod: %w", err)
	}
	return networkNamespace(path), nil
}

// forwarded counts the connections that are forwarded.
type forwarded struct {
	mu   sync.Mutex
	all  int
	pods map[types.UID]int
}

// begin counts a connection to the Pod uid, of a request that has own of them, unless there are too many.
func (f *forwarded) begin(uid types.UID, own *int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range []struct {
		has, most int
		what      string
	}{
		{*own, maxForwardedOfClient, "this port-forward has"}, {f.pods[uid], maxForwardedOfPod, "the Pod has"},
		{f.all, maxForwarded, "the node has"},
	} {
		if n.has >= n.most {
			return fmt.Errorf("too many requests: %s %d forwarded connections already; close some, or try again later", n.what, n.most)
		}
	}
	if f.pods == nil {
		f.pods = map[types.UID]int{}
	}
	*own++
	f.pods[uid]++
	f.all++
	return nil
}

// end counts a connection as ended.
func (f *forwarded) end(uid types.UID, own *int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*own--
	f.all--
	if f.pods[uid]--; f.pods[uid] == 0 {
		delete(f.pods, uid)
	}
}

// forwarder serves the streams of one request.
type forwarder struct {
	to networkNamespace
	// ctx ends when the client has disconnected. The stream server has contexts that never end.
	ctx context.Context //nolint:containedctx // see above
	pod types.UID
	all *forwarded
	own int // guarded by forwarded.mu
}

// PortForward connects one stream with a port, as long as there are not too many.
func (f *forwarder) PortForward(_ context.Context, name, uid string, port int32, stream io.ReadWriteCloser) error {
	if err := f.all.begin(f.pod, &f.own); err != nil {
		return errors.Join(err, sendReply(stream))
	}
	defer f.all.end(f.pod, &f.own)
	return f.to.PortForward(f.ctx, name, uid, port, stream)
}

// PortForward connects one stream with a port until ctx ends. Either side may close its half of the connection first; a port that
// then stays silent is disconnected.
func (i networkNamespace) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	if err := sendReply(stream); err != nil {
		return err
	}
	conn, err := i.dial(ctx, port)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	from := &silentConn{Conn: conn}
	go func() { // ends with the stream, which the client closes
		_, _ = io.Copy(conn, stream)
		if c, ok := conn.(*net.TCPConn); ok {
			_ = c.CloseWrite()
		}
		from.closed.Store(true)
		_ = conn.SetReadDeadline(time.Now().Add(silentTimeout))
	}()
	_, err = io.Copy(stream, from)
	if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return err
}

// silentConn is a connection to a port. After the client has sent its last byte, a read fails when the port was silent for too long.
type silentConn struct {
	net.Conn
	closed atomic.Bool // the client has sent its last byte
}

// Read reads what the port sends.
func (c *silentConn) Read(b []byte) (int, error) {
	if c.closed.Load() {
		_ = c.SetReadDeadline(time.Now().Add(silentTimeout))
	}
	return c.Conn.Read(b)
}

// sendReply sends the reply that opens a SPDY stream, unless that has been done. The stream server calls PortForward while
// it may not have sent that reply yet, and resets the stream when PortForward fails: a client that receives the reset
// first takes its port-forward for broken, and does not read the error stream, which says that nothing listens on the
// port.
func sendReply(stream io.ReadWriteCloser) error {
	s, ok := stream.(interface {
		SendReply(headers http.Header, fin bool) error
	})
	if !ok { // a channel of a WebSocket, which needs no reply
		return nil
	}
	return s.SendReply(http.Header{}, false)
}

// serveTunnel serves SPDY within a WebSocket, for clients behind proxies that support only WebSockets.
func serveTunnel(w http.ResponseWriter, r *http.Request, serve http.HandlerFunc) {
	const prefix, wanted = portforward.WebsocketsSPDYTunnelingPrefix, portforward.WebsocketsSPDYTunnelingPortForwardV1
	handler := func(ws *websocket.Conn) {
		ws.PayloadType = websocket.BinaryFrame
		inner := r.Clone(r.Context())
		inner.Method, inner.Body = http.MethodPost, http.NoBody
		for name := range inner.Header {
			if strings.HasPrefix(name, "Sec-Websocket-") {
				inner.Header.Del(name)
			}
		}
		inner.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
		inner.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
		inner.Header.Set(httpstream.HeaderProtocolVersion, strings.TrimPrefix(wanted, prefix))
		serve(&tunnelWriter{conn: ws, head: http.Header{}}, inner)
	}
	websocket.Server{Handler: handler, Handshake: func(c *websocket.Config, _ *http.Request) error {
		if !slices.Contains(c.Protocol, wanted) {
			return fmt.Errorf("unable to upgrade: the only tunneling protocol is %s", wanted)
		}
		c.Protocol = []string{wanted}
		return nil
	}}.ServeHTTP(w, r)
}

// tunnelWriter is the response writer of a request within a WebSocket: only its connection can be used.
type tunnelWriter struct {
	conn net.Conn
	head http.Header
}

// Header returns headers that are not sent.
func (t *tunnelWriter) Header() http.Header { return t.head }

// WriteHeader does nothing: the client has its response already.
func (t *tunnelWriter) WriteHeader(int) {}

// Write fails: unframed text would be taken for SPDY.
func (t *tunnelWriter) Write([]byte) (int, error) { return 0, http.ErrHijacked }

// Hijack returns the connection within the WebSocket.
func (t *tunnelWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return t.conn, bufio.NewReadWriter(bufio.NewReader(t.conn), bufio.NewWriter(t.conn)), nil
}
