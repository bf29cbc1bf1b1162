// Package responsewriter is the http.ResponseWriter of all answers. It sends long answers in pieces that the client
// must take in time, and gives back the seat and the memory of a request when they are no longer needed.
package responsewriter

import (
	"bufio"
	"bytes"
	"net"
	"net/http"

	"proa.dev/server/audit"
	"proa.dev/server/fairqueue"
	"proa.dev/server/memorybudget"
)

// Writer is the http.ResponseWriter of all answers. It records the status code and the size of an answer, and sends a
// long answer in pieces that the client must take in time.
type Writer struct {
	http.ResponseWriter
	User       string                // who has authenticated, also when it impersonates another user
	Code       int                   // of the answer; 0 before it is sent
	Bytes      int64                 // of the answer that have been sent
	Audit      *audit.Record         // the audit record; nil for none
	Memory     memorybudget.Lease    // of the answer
	BodyMemory [2]memorybudget.Lease // of the body: as it was read, and decoded
	Seat       Seat
	Work       fairqueue.Work // the processor time of the request
	Streaming  bool           // the client may take its time: it is a watch, or a stream
	SendError  error          // why the rest of the answer cannot be sent
	Terminated bool           // the server has refused the request to protect itself
	Socket     net.Conn       // of HTTP/1.1; nil when it is not known

	held   *bytes.Buffer // the beginning of the answer while it is held back; nil otherwise
	status int           // of an answer that is held back
	stall  *stallTimer   // nil when writes are not checked
}

// Hold buffers the beginning of an answer until it is more than a piece or SendHeld is called. So the seat of a handler
// that knows nothing of seats can be given back before its answer is sent.
func (w *Writer) Hold() {
	w.held = GetBuffer()
}

// SendHeld sends what was held back. An error is left in SendError.
func (w *Writer) SendHeld() {
	held := w.held
	if held == nil {
		return
	}
	w.held = nil
	defer PutBuffer(held)
	w.Memory.Shrink(MinRequestMemory + int64(held.Len()))
	if w.status != 0 {
		w.WriteHeader(w.status)
	}
	if held.Len() > 0 {
		_, _ = w.Write(held.Bytes())
	}
}

// WriteHeader records the status code and sends it, unless the answer is held back.
func (w *Writer) WriteHeader(code int) {
	if w.held != nil && code >= http.StatusOK {
		if w.status == 0 {
			w.status = code
		}
		return
	}
	w.Code = code
	w.Audit.ResponseStarted(code)
	w.ResponseWriter.WriteHeader(code)
}

// Write sends a part of the answer, and counts its bytes.
func (w *Writer) Write(b []byte) (int, error) {
	if w.held != nil {
		if w.held.Len()+len(b) <= PieceSize {
			return w.held.Write(b)
		}
		w.SendHeld()
	}
	if w.SendError != nil {
		return 0, w.SendError
	}
	if w.Code == 0 {
		w.Code = http.StatusOK
		w.Audit.ResponseStarted(w.Code)
	}
	if w.Streaming {
		n, err := w.ResponseWriter.Write(b)
		w.Bytes += int64(n)
		return n, err
	}
	return w.writePieces(b)
}

// writePieces sends bytes in pieces, each of which the client must take in time. An answer of one piece is not checked
// while memory is not scarce.
func (w *Writer) writePieces(b []byte) (sent int, err error) {
	if w.stall == nil && (w.Bytes+int64(len(b)) > PieceSize || w.Memory.IsScarce()) {
		w.stall = newStallTimer(w)
	}
	for {
		part := b[sent:min(len(b), sent+PieceSize)]
		w.stall.begin()
		n, err := w.ResponseWriter.Write(part)
		w.stall.end()
		w.Bytes += int64(n)
		sent += n
		if err != nil {
			w.SendError = err
			return sent, err
		}
		if sent >= len(b) {
			return sent, nil
		}
	}
}

// DiscardHeld drops what was held back.
func (w *Writer) DiscardHeld() {
	if w.held != nil {
		PutBuffer(w.held)
		w.held, w.status = nil, 0
	}
}

// Finish ends the checks of the answer and gives back its seat and memory.
func (w *Writer) Finish() {
	w.DiscardHeld()
	w.Work.End()
	w.Seat.Free()
	w.stall.stop()
	w.Memory.Release()
}

// StartStreaming gives back the seat and the memory of the answer and lets the client take its time from now on: the
// beginning of a watch has been sent, or a stream begins.
func (w *Writer) StartStreaming() {
	w.SendHeld()
	w.Seat.Free()
	w.stall.stop()
	w.stall, w.Streaming = nil, true
	w.Memory.Release()
}

// Unwrap lets http.ResponseController reach the connection.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack gives the connection to a WebSocket.
func (w *Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.Code = http.StatusSwitchingProtocols
	w.Audit.ResponseStarted(w.Code)
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Flush sends what was written.
func (w *Writer) Flush() {
	w.SendHeld()
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		w.stall.begin()
		f.Flush()
		w.stall.end()
	}
}
