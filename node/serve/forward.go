package serve

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

// streamsWithin is how long a client may take to open the streams of a port.
const streamsWithin = 30 * time.Second

// forward connects ports of a client with ports of a Pod. It does that itself: a connection from within the network of the Pod
// needs no help of the runtime.
func (s *Server) forward(w http.ResponseWriter, r *http.Request) {
	tunnel := wsstream.IsWebSocketRequestWithTunnelingProtocol(r)
	o := &portforward.V4Options{}
	if !tunnel {
		var err error
		if o, err = portforward.NewV4Options(r); err != nil {
			refuse(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	l, found := s.find(r)
	if !found {
		refuse(w, "pod does not exist", http.StatusNotFound)
		return
	}
	to, err := s.within(r.Context(), l)
	if err != nil {
		refuse(w, err.Error(), http.StatusInternalServerError)
		return
	}
	serve := func(w http.ResponseWriter, r *http.Request) {
		portforward.ServePortForward(w, r, to, l.Pod.Name, string(l.Pod.UID), o, idle, streamsWithin, portforward.SupportedProtocols)
	}
	if tunnel {
		serveTunnel(w, r, serve) //nolint:contextcheck // the request carries it
		return
	}
	serve(w, r)
}

// inside dials from within the network of a Pod; empty is that of the node.
type inside string

// within finds the network of a Pod.
func (s *Server) within(ctx context.Context, l pod.Local) (inside, error) {
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
	return inside(path), nil
}

// PortForward connects one stream with a port. Either end may be done speaking before the other is.
func (i inside) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	if err := accept(stream); err != nil {
		return err
	}
	conn, err := i.dial(ctx, port)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	go func() { // ends with the stream, which its client ends
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

// accept tells the client of a SPDY stream that the stream is open, unless it knows. The server of the streams calls PortForward while it
// may not have sent that reply yet, and resets the stream when PortForward fails: a client that hears of the reset first takes its
// port-forward for broken, and does not read the error stream, which says that nobody listens on the port.
func accept(stream io.ReadWriteCloser) error {
	s, ok := stream.(interface {
		SendReply(headers http.Header, fin bool) error
	})
	if !ok { // a channel of a WebSocket, which is open with its connection
		return nil
	}
	return s.SendReply(http.Header{}, false)
}

// serveTunnel serves SPDY within a WebSocket, for clients behind proxies that know only those.
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
		serve(&tunnelled{conn: ws, head: http.Header{}}, inner)
	}
	websocket.Server{Handler: handler, Handshake: func(c *websocket.Config, _ *http.Request) error {
		if !slices.Contains(c.Protocol, wanted) {
			return fmt.Errorf("unable to upgrade: the only tunneling protocol is %s", wanted)
		}
		c.Protocol = []string{wanted}
		return nil
	}}.ServeHTTP(w, r)
}

// tunnelled is an answer that was begun outside: all that is left is the connection.
type tunnelled struct {
	conn net.Conn
	head http.Header
}

// Header is not sent.
func (t *tunnelled) Header() http.Header { return t.head }

// WriteHeader is not sent either: the client has its answer.
func (t *tunnelled) WriteHeader(int) {}

// Write fails: what is said in the open would be taken for SPDY.
func (t *tunnelled) Write([]byte) (int, error) { return 0, http.ErrHijacked }

// Hijack hands out the connection within the WebSocket.
func (t *tunnelled) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return t.conn, bufio.NewReadWriter(bufio.NewReader(t.conn), bufio.NewWriter(t.conn)), nil
}
