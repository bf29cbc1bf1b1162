package server

import (
	"bytes"
	"errors"
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
	zip  *gzip.Writer  // nil when the answer is not compressed
	out  *bytes.Buffer // what zip has made and is not sent
	sent bool          // the header is, and a part of the list
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
	err := w.work.Begin(req.Context())
	if err == nil {
		err = l.e.response(l.buf, res, l.spill)
	}
	w.work.End()
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
	if l.zip != nil {
		err = errors.Join(err, l.unzip(err == nil))
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
	if err := l.flush(); err != nil {
		return err
	}
	return l.w.work.Begin(l.req.Context())
}

// flush sends what is encoded, with the header if that is not sent yet. The client may take its time for that: the request does not compute
// meanwhile.
func (l *listAnswer) flush() error {
	if !l.sent {
		l.sent = true
		l.begin()
	}
	b := l.buf.Bytes()
	l.keep(b)
	if l.zip != nil {
		if _, err := l.zip.Write(b); err != nil {
			return err
		}
		b = l.out.Bytes()
	}
	l.w.work.End()
	_, err := l.w.Write(b)
	l.buf.Reset()
	if l.zip != nil {
		l.out.Reset()
	}
	return err
}

// unzip ends the compressing of an answer, and sends the last of it if that is wanted.
func (l *listAnswer) unzip(send bool) error {
	defer recycle(l.out)
	defer zippers.Put(l.zip)
	if !send {
		return nil
	}
	if err := l.zip.Close(); err != nil {
		return err
	}
	_, err := l.w.Write(l.out.Bytes())
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
		l.out = buffers.Get().(*bytes.Buffer)
		l.out.Reset()
		l.zip.Reset(l.out)
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
