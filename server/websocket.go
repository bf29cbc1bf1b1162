package server

import (
	"context"
	"net/http"
	"time"

	"golang.org/x/net/websocket"

	"proa.dev/kinds/codec"
)

// streamWebSocket sends the events of a watch as messages of a WebSocket: text for JSON, binary for protobuf.
func (s *Server) streamWebSocket(w *recorder, req *http.Request, st *Stream, e *encoder) {
	binary := e.f.media == codec.Proto
	ran := false
	defer func() {
		if !ran { // the handshake failed
			st.watcher.Close()
			st.ended()
		}
	}()
	handler := func(ws *websocket.Conn) {
		if ws.PayloadType = websocket.TextFrame; binary {
			ws.PayloadType = websocket.BinaryFrame
		}
		ctx, stop := context.WithCancel(req.Context())
		defer stop()
		defer func() { _ = ws.Close() }() // tells the client that this is the end, if it is still there
		go func() {                       // ends with the connection, which the server closes when this handler returns
			defer stop()
			var b [512]byte
			for {
				if _, err := ws.Read(b[:]); err != nil {
					return
				}
			}
		}()
		ran, st.framed = true, true
		st.run(ctx, e, &message{Conn: ws, binary: binary, rec: w})
	}
	// Credentials were checked before; the origin says nothing about them.
	websocket.Server{Handler: handler, Handshake: func(c *websocket.Config, _ *http.Request) error {
		if len(c.Protocol) > 1 {
			c.Protocol = c.Protocol[:1]
		}
		return nil
	}}.ServeHTTP(w, req)
}

// message is a sink that sends each write as one message.
type message struct {
	*websocket.Conn
	binary bool
	rec    *recorder
	begun  bool // the state is sent
}

// encoded says that all of the state is encoded.
func (m *message) encoded() { m.rec.seat.free() }

// stated says that the state is sent. From now on the client may take its time.
func (m *message) stated() {
	m.begun = true
	m.rec.seat.free()
	m.rec.lease.Release()
	_ = m.SetWriteDeadline(time.Time{})
}

// Write sends one frame without the length prefix that a byte stream needs.
func (m *message) Write(b []byte) (int, error) {
	n := len(b)
	if !m.begun {
		_ = m.SetWriteDeadline(time.Now().Add(m.rec.patience()))
	}
	if m.binary {
		b = b[4:]
	}
	_, err := m.Conn.Write(b)
	return n, err
}

// Flush does nothing: messages are sent at once.
func (m *message) Flush() {}
