package kubeletapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"proa.dev/node/pod"
)

// streamTimeout is how long a client may take to open the streams of a port.
const streamTimeout = 30 * time.Second

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
		portforward.ServePortForward(w, r, to, l.Pod.Name, string(l.Pod.UID), o, idleTimeout, streamTimeout, portforward.SupportedProtocols)
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

// PortForward connects one stream with a port. Either side may close its half of the connection first.
func (i networkNamespace) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	if err := sendReply(stream); err != nil {
		return err
	}
	conn, err := i.dial(ctx, port)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	go func() { // ends with the stream, which the client closes
		_, _ = io.Copy(conn, stream)
		if c, ok := conn.(*net.TCPConn); ok {
			_ = c.CloseWrite()
		}
	}()
	_, err = io.Copy(stream, conn)
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
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
