package httpapi

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/net/websocket"

	"proa.dev/kinds/lib/codec"
	"proa.dev/server/responsewriter"
)

// streamWebSocket sends the events of a watch as messages of a WebSocket: text for JSON, binary for protobuf.
func (s *Handler) streamWebSocket(w *responsewriter.Writer, req *http.Request, events *eventWriter) {
	binary := events.encoder.Format.Media == codec.Proto
	ran := false
	defer func() {
		if !ran { // the handshake failed
			events.Watcher.Close()
			events.Ended()
		}
	}()
	handler := func(ws *websocket.Conn) {
		if ws.PayloadType = websocket.TextFrame; binary {
			ws.PayloadType = websocket.BinaryFrame
		}
		ctx, stop := context.WithCancel(req.Context())
		defer stop()
		defer func() { _ = ws.Close() }() // sends a close frame to a client that is still there
		go func() {                       // ends with the connection, which is closed when this handler returns
			defer stop()
			var b [512]byte
			for {
				if _, err := ws.Read(b[:]); err != nil {
					return
				}
			}
		}()
		ran, events.framed = true, true
		events.run(ctx, &message{Conn: ws, binary: binary, rec: w})
	}
	// The request is authenticated, so the origin does not matter.
	websocket.Server{Handler: handler, Handshake: func(c *websocket.Config, _ *http.Request) error {
		if len(c.Protocol) > 1 {
			c.Protocol = c.Protocol[:1]
		}
		return nil
	}}.ServeHTTP(w, req)
}

// message is the eventSink of a WebSocket: each write is sent as one message.
type message struct {
	*websocket.Conn
	binary bool
	rec    *responsewriter.Writer
	begun  bool // the present objects have been sent
}

// stateEncoded gives the seat back.
func (m *message) stateEncoded() { m.rec.Seat.Free() }

// stateSent lets the client take its time from now on.
func (m *message) stateSent() {
	m.begun = true
	m.rec.Seat.Free()
	m.rec.Memory.Release()
	_ = m.SetWriteDeadline(time.Time{})
}

// Write sends one event, without the length prefix that protobuf has in a byte stream.
func (m *message) Write(b []byte) (int, error) {
	n := len(b)
	if !m.begun {
		_ = m.SetWriteDeadline(time.Now().Add(m.rec.StallLimit()))
	}
	if m.binary {
		b = b[4:]
	}
	_, err := m.Conn.Write(b)
	return n, err
}

// Flush does nothing: messages are sent at once.
func (m *message) Flush() {}
