package server

import (
	"bytes"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"proa.dev/server/audit"
)

// zipMemory is about what it takes to compress an answer. When there is not as much, it is sent as it is.
const zipMemory = 512 << 10

// buffers are reused between answers.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// recycle gives a buffer back, unless it has grown so much that it is better forgotten.
func recycle(buf *bytes.Buffer) {
	if buf.Cap() < 1<<20 {
		buffers.Put(buf)
	}
}

// writeAnswer encodes an answer that is no watch, and sends it. The seat of the request is given back when all of the answer
// is encoded and no more than a piece of it is left to be sent.
func (s *Server) writeAnswer(w *recorder, req *http.Request, res *Response, e *encoder) {
	buf := buffers.Get().(*bytes.Buffer)
	buf.Reset()
	defer recycle(buf)
	if res.List != nil {
		s.writeList(w, req, res, &listAnswer{e: e, buf: buf})
		return
	}
	if err := e.response(buf, res, nil); err != nil {
		s.fail(w, req, err)
		return
	}
	if n := int64(buf.Len()); n > piece && !w.lease.Grow(n) {
		if req.Method == http.MethodGet {
			s.fail(w, req, tooMany())
			return
		}
		if !w.lease.Force(n) { // what was asked for is done: nobody may be told to ask again
			panic(http.ErrAbortHandler)
		}
	}
	w.seat.free()
	w.lease.Shrink(leastHeld + int64(buf.Len()))
	s.answered(w.trail, res, e, buf.Bytes())
	send(w, req, res.Code, e.f.media.ContentType(), buf.Bytes())
}

// listAnswer is a list on its way to a client: items are encoded into a buffer, which is sent whenever it is full. So a list
// holds no more memory than a piece and an item, however long it is.
type listAnswer struct {
	w    *recorder
	req  *http.Request
	res  *Response
	e    *encoder
	buf  *bytes.Buffer
	zip  *gzip.Writer // nil when the answer is not compressed
	sent bool         // the header is, and a part of the list
	copy *bytes.Buffer
	size int
}

// writeList sends a list. What fails before anything was sent is answered with a Status; later the answer is aborted, so that
// no client takes a part for the whole.
func (s *Server) writeList(w *recorder, req *http.Request, res *Response, l *listAnswer) {
	l.w, l.req, l.res = w, req, res
	wanted := w.trail != nil && w.trail.WantsResponse()
	if wanted {
		l.copy = &bytes.Buffer{}
	}
	res.List.once = !wanted
	err := l.e.response(l.buf, res, l.spill)
	w.seat.free()
	switch {
	case err != nil && !l.sent:
		s.fail(w, req, err)
		return
	case err == nil && !l.sent:
		w.lease.Shrink(leastHeld + int64(l.buf.Len()))
		s.answered(w.trail, res, l.e, l.buf.Bytes())
		send(w, req, res.Code, l.e.f.media.ContentType(), l.buf.Bytes())
		return
	case err == nil:
		err = l.flush()
	}
	if wanted && err == nil {
		s.answeredList(w.trail, l)
	}
	if err == nil && l.zip != nil {
		err = l.zip.Close()
	}
	if l.zip != nil {
		zippers.Put(l.zip)
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// spill sends what is encoded if it is a piece or more.
func (l *listAnswer) spill() error {
	if l.buf.Len() < piece {
		return nil
	}
	return l.flush()
}

// flush sends what is encoded, with the header if that is not sent yet.
func (l *listAnswer) flush() error {
	if !l.sent {
		l.sent = true
		l.begin()
	}
	b := l.buf.Bytes()
	l.keep(b)
	var err error
	if l.zip != nil {
		_, err = l.zip.Write(b)
	} else {
		_, err = l.w.Write(b)
	}
	l.buf.Reset()
	return err
}

// begin sends the header of a list that is more than a piece. Its length is not known.
func (l *listAnswer) begin() {
	h := l.w.Header()
	h.Set("Content-Type", l.e.f.media.ContentType())
	if acceptsGzip(l.req) && l.w.lease.Grow(zipMemory) {
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		l.zip = zippers.Get().(*gzip.Writer)
		l.zip.Reset(l.w)
	}
	l.w.WriteHeader(l.res.Code)
}

// keep remembers a part of the answer for the audit log, as long as that takes it.
func (l *listAnswer) keep(b []byte) {
	if l.size += len(b); l.copy == nil {
		return
	}
	if l.size > audit.MaxBodies {
		l.copy = nil
		return
	}
	l.copy.Write(b)
}

// answeredList records a list that was sent in pieces.
func (s *Server) answeredList(t *audit.Trail, l *listAnswer) {
	if l.copy == nil {
		t.TooLarge()
		return
	}
	s.answered(t, l.res, l.e, l.copy.Bytes())
}

func acceptsGzip(req *http.Request) bool {
	return strings.Contains(req.Header.Get("Accept-Encoding"), "gzip")
}
